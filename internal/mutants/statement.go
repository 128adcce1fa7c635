package main

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// statement adds the mutants of a statement: conditions that always or never
// hold, loops that do not run, and statements left out.
func (g *generator) statement(n ast.Stmt) {
	switch n := n.(type) {
	case *ast.IfStmt:
		g.condition(n.Cond, true, true)
	case *ast.ForStmt:
		if n.Cond != nil { // one that always holds hangs
			g.condition(n.Cond, false, true)
		}
	case *ast.RangeStmt:
		g.edit(n, n.Body.Lbrace, n.Body.Lbrace+1, "{ break;",
			"range %s: never runs", g.text(n.X))
	case *ast.CaseClause:
		g.cases(n)
	case *ast.AssignStmt:
		g.assignment(n)
	case *ast.IncDecStmt:
		if !g.isHeader(n) {
			g.swap(n, g.text(n.X)+map[token.Token]string{token.INC: "--", token.DEC: "++"}[n.Tok])
			g.remove(n, "")
		}
	case *ast.ReturnStmt:
		if len(n.Results) == 0 {
			g.remove(n, "")
		}
	case *ast.ExprStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt, *ast.BranchStmt:
		g.remove(n, "")
	}
}

// isHeader reports whether n belongs to the head of a statement, not to a block.
func (g *generator) isHeader(n ast.Stmt) bool {
	switch p := g.parent().(type) {
	case *ast.BlockStmt:
		return false
	case *ast.CaseClause:
		return false
	case *ast.CommClause:
		return p.Comm == n
	default:
		return true
	}
}

// remove adds the mutant that has rest in the place of a statement.
func (g *generator) remove(n ast.Stmt, rest string) {
	if !g.isHeader(n) {
		g.replace(n, rest, "removed: %s", g.text(n))
	}
}

// condition adds the mutants in which cond always or never holds. It stays in
// the source, so that its variables are used.
func (g *generator) condition(cond ast.Expr, always, never bool) {
	text := g.text(cond)
	b, _ := ast.Unparen(cond).(*ast.BinaryExpr)
	if always && (b == nil || b.Op != token.LAND) { // else its operands say more
		g.replace(cond, "(true || "+text+")", "%s: always", text)
	}
	if never && (b == nil || b.Op != token.LOR) {
		g.replace(cond, "(false && "+text+")", "%s: never", text)
	}
}

// cases forces the conditions of a switch without a tag.
func (g *generator) cases(n *ast.CaseClause) {
	s, ok := g.parents[len(g.parents)-2].(*ast.SwitchStmt)
	if !ok || s.Tag != nil {
		return
	}
	for _, cond := range n.List {
		g.condition(cond, true, true)
	}
}

// assigns says what stands for an operator in an assignment.
var assigns = map[token.Token]token.Token{
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.MUL_ASSIGN: token.QUO_ASSIGN, token.QUO_ASSIGN: token.MUL_ASSIGN,
	token.OR_ASSIGN: token.AND_ASSIGN, token.AND_ASSIGN: token.OR_ASSIGN,
	token.SHL_ASSIGN: token.SHR_ASSIGN, token.SHR_ASSIGN: token.SHL_ASSIGN,
}

func (g *generator) assignment(n *ast.AssignStmt) {
	if other, ok := assigns[n.Tok]; ok {
		g.swap(n, g.text(n.Lhs[0])+" "+other.String()+" "+g.text(n.Rhs[0]))
	}
	if n.Tok != token.DEFINE { // what is assigned stays, so that it is used
		blanks := strings.TrimSuffix(strings.Repeat("_, ", len(n.Lhs)), ", ")
		values := g.src[g.offset(n.Rhs[0].Pos()):g.offset(n.End())]
		g.remove(n, blanks+" = "+values)
	}
	g.remainder(n)
}

// flags are names of second results that are no numbers.
var flags = []string{"_", "ok", "found", "known", "err"}

// remainder drops the second of two results: a remainder, a carry.
func (g *generator) remainder(n *ast.AssignStmt) {
	if len(n.Lhs) != 2 || len(n.Rhs) != 1 || g.isHeader(n) {
		return
	}
	second := g.text(n.Lhs[1])
	if _, call := n.Rhs[0].(*ast.CallExpr); call && !slices.Contains(flags, second) {
		g.replace(n, g.text(n)+"; "+second+" -= "+second, "dropped: %s of %s", second, g.text(n))
	}
}
