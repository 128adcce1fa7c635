package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// variable is the environment variable that says which mutant runs.
const variable = "MUTANT"

// switchFile joins the mutated package; a package's variables are set before the
// functions that need them run.
const switchFile = `package %s

import (
	"os"
	"strconv"
)

var mutantNumber = func() int { n, _ := strconv.Atoi(os.Getenv("` + variable + `")); return n }()
`

// span is the lines of a file that a mutant takes.
type span struct {
	file        string
	first, last int
	number      int
}

// builder makes one program of all mutants of a package: each function begins
// with a switch over copies of its body, one for each mutant of it.
type builder struct {
	root    string
	dir     string // the package's, from root
	temp    string
	mutants []mutant // mutant n is at n-1
	invalid []bool
	spans   []span
}

// overlay writes the package with its mutants, and returns the file that tells go
// build of it.
func (b *builder) overlay() (string, error) {
	b.spans = nil
	replace := map[string]string{}
	name := ""
	for _, file := range b.files() {
		original := filepath.Join(b.root, file)
		src, err := os.ReadFile(original)
		if err != nil {
			return "", err
		}
		if name, err = packageName(src); err != nil {
			return "", err
		}
		replace[original] = filepath.Join(b.temp, path.Base(file))
		if err := os.WriteFile(replace[original], b.instrument(file, src), 0o600); err != nil {
			return "", err
		}
	}
	added := filepath.Join(b.temp, "mutant_switch.go")
	replace[filepath.Join(b.root, b.dir, "mutant_switch.go")] = added
	return writeOverlay(b.temp, replace, added, fmt.Sprintf(switchFile, name))
}

// files returns the files that have mutants.
func (b *builder) files() []string {
	var files []string
	for _, m := range b.mutants {
		if !slices.Contains(files, m.file) {
			files = append(files, m.file)
		}
	}
	return files
}

func packageName(src []byte) (string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), "", src, parser.PackageClauseOnly)
	if err != nil {
		return "", err
	}
	return parsed.Name.Name, nil
}

// writeOverlay writes a file, and the list of what replaces what.
func writeOverlay(
	dir string, replace map[string]string, file, text string,
) (string, error) {
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(
		os.WriteFile(file, []byte(text), 0o600), os.WriteFile(overlay, list, 0o600))
}

// instrument returns a file with the switches.
func (b *builder) instrument(file string, src []byte) []byte {
	var out bytes.Buffer
	done, open := 0, body{}
	line := func() int { return 1 + bytes.Count(out.Bytes(), []byte("\n")) }
	for i, m := range b.mutants {
		if m.file != file || m.body == (body{}) || b.invalid[i] {
			continue
		}
		if m.body != open {
			if open != (body{}) {
				out.WriteString("}\n")
			}
			open = m.body
			out.Write(src[done : open.start+1])
			out.WriteString("\nswitch mutantNumber {\n")
			done = open.start + 1
		}
		first := line()
		call := "return func() " + open.results + " %s%s%s()\n"
		if open.results == "" {
			call = "func() %s%s%s()\nreturn\n"
		}
		fmt.Fprintf(&out, "case %d:\n"+call, i+1,
			src[open.start:m.start], m.text, src[m.end:open.end])
		b.spans = append(b.spans, span{path.Base(file), first, line() - 1, i + 1})
	}
	if open != (body{}) {
		out.WriteString("}\n")
	}
	out.Write(src[done:])
	return out.Bytes()
}

// settle finds the mutants that do not compile, and returns the overlay with the
// others.
func (b *builder) settle(ctx context.Context) (string, error) {
	for {
		overlay, err := b.overlay()
		if err != nil {
			return "", err
		}
		cmd := exec.CommandContext(ctx, "go", "build", "-gcflags=-e", "-overlay="+overlay, "./"+b.dir)
		cmd.Dir = b.root
		out, err := cmd.CombinedOutput()
		if err == nil {
			return overlay, nil
		}
		if !b.blame(string(out)) {
			return "", fmt.Errorf("%s does not compile: %w\n%s", b.dir, err, out)
		}
	}
}

var compileError = regexp.MustCompile(`(?m)([^/\s]+\.go):(\d+)(:\d+)?: `)

// blame marks the mutants in whose lines the compiler found something, and
// reports whether there were any.
func (b *builder) blame(out string) bool {
	found := false
	for _, match := range compileError.FindAllStringSubmatch(out, -1) {
		line, _ := strconv.Atoi(match[2])
		for _, s := range b.spans {
			if s.file == match[1] && s.first <= line && line <= s.last {
				b.invalid[s.number-1], found = true, true
			}
		}
	}
	return found
}

// compileTests returns the test program of a package under an overlay.
func compileTests(ctx context.Context, root, pkg, overlay, out string) (string, error) {
	program := filepath.Join(out, strings.ReplaceAll(pkg, "/", "_")+".mutants")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w",
		"-overlay="+overlay, "-o", program, "./"+pkg)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the tests of %s do not compile: %w\n%s", pkg, err, out)
	}
	return program, nil
}
