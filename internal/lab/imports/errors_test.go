package imports_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An error that does not name its package is shown as one of limiter.
func TestConfigErrors_NameThePackageThatMakesThem(t *testing.T) {
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "internal" || d.Name() == "examples"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.CompositeLit); ok && isConfigError(literal) {
				found[file.Name.Name] = true
				assert.Equal(t, file.Name.Name, packageOf(literal), "%s: the field Package of a ConfigError",
					fset.Position(literal.Pos()))
			}
			return true
		})
		return nil
	}))
	for _, name := range []string{"keying", "middleware", "grpcinterceptor", "memstore",
		"redisstore", "metrics"} {
		assert.True(t, found[name], "%s makes errors", name)
	}
}

// isConfigError reports whether a literal is a limiter.ConfigError of another
// package than limiter itself.
func isConfigError(literal *ast.CompositeLit) bool {
	selector, ok := literal.Type.(*ast.SelectorExpr)
	return ok && selector.Sel.Name == "ConfigError"
}

// packageOf returns what a literal says in its field Package.
func packageOf(literal *ast.CompositeLit) string {
	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		name, isName := pair.Key.(*ast.Ident)
		value, isText := pair.Value.(*ast.BasicLit)
		if isName && isText && name.Name == "Package" {
			text, _ := strconv.Unquote(value.Value)
			return text
		}
	}
	return ""
}
