package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// mutant is one change of one file.
type mutant struct {
	file     string // from the module's root, with slashes
	line     int
	function string // or the first name of the declaration
	change   string // in words
	source   string // the text of the line

	start, end int    // what is replaced: offsets
	text       string // by what
	body       body   // of the function; zero for what is declared outside
}

// body is the braces of a function, as offsets, and what is between.
type body struct {
	start, end int
	results    string // of the function
}

// String says where and what, in one line.
func (m mutant) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", m.file, m.line, m.function, m.change)
}

// apply returns the mutated source.
func (m mutant) apply(src []byte) []byte {
	return slices.Concat(src[:m.start], []byte(m.text), src[m.end:])
}

// generator walks one file.
type generator struct {
	file     *token.File
	name     string
	src      string
	function string
	body     body
	parents  []ast.Node // of the node that is visited, the outermost first
	found    []mutant
}

// mutate returns the mutants of a file, in order of position.
func mutate(name string, src []byte) ([]mutant, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	g := &generator{file: files.File(parsed.Pos()), name: name, src: string(src)}
	for _, d := range parsed.Decls {
		if g.function = g.declared(d); g.function != "" {
			g.body = g.bodyOf(d)
			ast.Inspect(d, g.visit)
		}
	}
	slices.SortStableFunc(g.found, func(a, b mutant) int { return a.start - b.start })
	return g.found, nil
}

// declared returns the name of a declaration of code or values, or "".
func (g *generator) declared(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil {
			return "(" + g.text(d.Recv.List[0].Type) + ")." + d.Name.Name
		}
		return d.Name.Name
	case *ast.GenDecl:
		if values, ok := d.Specs[0].(*ast.ValueSpec); ok {
			return values.Names[0].Name
		}
	}
	return ""
}

func (g *generator) bodyOf(d ast.Decl) body {
	f, ok := d.(*ast.FuncDecl)
	if !ok {
		return body{}
	}
	b := body{start: g.offset(f.Body.Pos()), end: g.offset(f.Body.End())}
	if f.Type.Results != nil {
		b.results = g.text(f.Type.Results)
	}
	return b
}

func (g *generator) visit(n ast.Node) bool {
	if n == nil {
		g.parents = g.parents[:len(g.parents)-1]
		return true
	}
	switch n := n.(type) {
	case ast.Stmt:
		g.statement(n)
	case ast.Expr:
		g.expression(n)
	}
	g.parents = append(g.parents, n)
	return true
}

// parent returns the node around the one that is visited.
func (g *generator) parent() ast.Node {
	if len(g.parents) == 0 {
		return nil
	}
	return g.parents[len(g.parents)-1]
}

func (g *generator) offset(p token.Pos) int { return g.file.Offset(p) }

// text returns the source of a node.
func (g *generator) text(n ast.Node) string { return g.src[g.offset(n.Pos()):g.offset(n.End())] }

// replace adds the mutant that has text in the place of n.
func (g *generator) replace(n ast.Node, text, format string, args ...any) {
	g.edit(n, n.Pos(), n.End(), text, format, args...)
}

// edit adds the mutant of n that has text between two positions.
func (g *generator) edit(
	n ast.Node, from, to token.Pos, text, format string, args ...any,
) {
	line := g.file.Line(n.Pos())
	start, end := g.offset(g.file.LineStart(line)), len(g.src)
	if line < g.file.LineCount() {
		end = g.offset(g.file.LineStart(line + 1))
	}
	g.found = append(g.found, mutant{
		file: g.name, line: line, function: g.function,
		change: oneLine(fmt.Sprintf(format, args...)), source: strings.TrimSpace(g.src[start:end]),
		start: g.offset(from), end: g.offset(to), text: text, body: g.body,
	})
}

// swap adds the mutant in which text stands for n, and shows both.
func (g *generator) swap(n ast.Node, text string) {
	g.replace(n, text, "%s -> %s", g.text(n), text)
}

// oneLine makes one line of source that spans several.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
