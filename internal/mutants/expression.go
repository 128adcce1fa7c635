package main

import (
	"go/ast"
	"go/token"
	"strconv"
)

// expression adds the mutants of an expression.
func (g *generator) expression(n ast.Expr) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		g.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.SUB || n.Op == token.NOT && !g.isCondition(n) {
			g.swap(n, g.text(n.X))
		}
	case *ast.BasicLit:
		g.literal(n)
	case *ast.Ident:
		if other := map[string]string{"true": "false", "false": "true"}[n.Name]; other != "" {
			g.inParent(n, other)
		}
	case *ast.CallExpr:
		g.call(n)
	case *ast.CompositeLit:
		g.fields(n)
	}
}

// boundaries are the comparisons that differ where both sides are equal,
// opposites those that differ everywhere.
var (
	boundaries = map[token.Token]token.Token{
		token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	}
	opposites = map[token.Token]token.Token{
		token.LSS: token.GEQ, token.LEQ: token.GTR, token.GTR: token.LEQ, token.GEQ: token.LSS,
		token.EQL: token.NEQ, token.NEQ: token.EQL,
	}
	operators = map[token.Token]token.Token{
		token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
		token.SHL: token.SHR, token.SHR: token.SHL, token.AND: token.OR, token.OR: token.AND,
		token.AND_NOT: token.AND,
	}
)

func (g *generator) binary(n *ast.BinaryExpr) {
	x, y := g.text(n.X), g.text(n.Y)
	if other, ok := boundaries[n.Op]; ok {
		g.swap(n, x+" "+other.String()+" "+y)
	}
	if other, ok := opposites[n.Op]; ok && !g.isCondition(n) {
		g.swap(n, x+" "+other.String()+" "+y)
	}
	if other, ok := operators[n.Op]; ok && !isText(n.X) && !isText(n.Y) {
		g.swap(n, x+" "+other.String()+" "+y)
	}
	switch n.Op {
	case token.REM:
		g.swap(n, x)
	case token.LAND:
		g.condition(n.X, true, false)
		g.condition(n.Y, true, false)
	case token.LOR:
		g.condition(n.X, false, true)
		g.condition(n.Y, false, true)
	}
}

func isText(n ast.Expr) bool {
	literal, ok := n.(*ast.BasicLit)
	return ok && literal.Kind == token.STRING
}

// isCondition reports whether the node that is visited is forced to true or
// false anyway.
func (g *generator) isCondition(n ast.Expr) bool {
	switch p := g.parent().(type) {
	case *ast.IfStmt:
		return p.Cond == n
	case *ast.ForStmt:
		return p.Cond == n
	case *ast.CaseClause:
		return true
	case *ast.BinaryExpr:
		return p.Op == token.LAND || p.Op == token.LOR
	default:
		return false
	}
}

// literal adds the mutants in which an integer is off by one.
func (g *generator) literal(n *ast.BasicLit) {
	if n.Kind != token.INT {
		return
	}
	i, err := strconv.ParseInt(n.Value, 0, 64)
	if err != nil {
		return
	}
	if b, ok := g.parent().(*ast.BinaryExpr); ok && i == 0 && boundaries[b.Op] != 0 {
		return // x < 1 is x <= 0
	}
	g.inParent(n, strconv.FormatInt(i+1, 10))
	if i > 0 {
		g.inParent(n, strconv.FormatInt(i-1, 10))
	}
}

// inParent adds the mutant in which text stands for n, and shows the expression
// around it, which tells one 1 from another.
func (g *generator) inParent(n ast.Expr, text string) {
	around, ok := g.parent().(ast.Expr)
	if !ok {
		g.swap(n, text)
		return
	}
	whole := g.text(around)
	before := whole[:n.Pos()-around.Pos()]
	after := whole[n.End()-around.Pos():]
	g.replace(n, text, "%s -> %s%s%s", whole, before, text, after)
}

// call adds the mutants of calls that clamp, compare or round.
func (g *generator) call(n *ast.CallExpr) {
	switch f := n.Fun.(type) {
	case *ast.Ident:
		if f.Name == "min" || f.Name == "max" {
			for _, arg := range n.Args {
				g.swap(n, "("+g.text(arg)+")")
			}
		}
	case *ast.SelectorExpr:
		if len(n.Args) == 1 {
			g.method(n, g.text(f.X), f.Sel.Name, g.text(n.Args[0]))
		}
	}
}

// method adds the mutants of the methods that stand for operators.
func (g *generator) method(n *ast.CallExpr, x, name, y string) {
	switch name {
	case "ceilDiv":
		g.replace(n, "func() uint64 { q, _ := ("+x+").div("+y+"); return q }()",
			"%s -> rounded down", g.text(n))
	case "floorSub":
		g.swap(n, x+".sub("+y+")")
	case "less":
		g.swap(n, "!("+y+").less("+x+")")
	case "add":
		g.swap(n, x+".sub("+y+")")
	case "sub":
		g.swap(n, x+".add("+y+")")
	}
}

// fields leaves out the named fields of a composite literal, one at a time.
func (g *generator) fields(n *ast.CompositeLit) {
	for i, element := range n.Elts {
		field, ok := element.(*ast.KeyValueExpr)
		if !ok {
			return
		}
		if _, ok := field.Key.(*ast.Ident); !ok {
			return
		}
		from, to := field.Pos(), field.End()
		switch {
		case i+1 < len(n.Elts):
			to = n.Elts[i+1].Pos()
		case i > 0:
			from = n.Elts[i-1].End()
		}
		g.edit(field, from, to, "", "removed: %s", g.text(field))
	}
}
