package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// mostBranches is how many choices a function of package agent makes, beside the return of an error: whoever decides more does a
// room's work, and is to be in one.
const mostBranches = 4

// TestAgentWires: package agent opens the rooms and gives each its functions. What is decided, and said of it, is a room's.
func TestAgentWires(t *testing.T) {
	files, err := filepath.Glob("../../agent/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("there is no package agent: %v", err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				if n := branches(f); n > mostBranches {
					t.Errorf("%s: %s has %d branches, and may have %d: what it decides is for a room of its own", name, f.Name.Name, n, mostBranches)
				}
			}
		}
	}
}

// branches counts a function's ifs, loops and cases, but for `if err != nil { return ... }`.
func branches(f *ast.FuncDecl) (n int) {
	ast.Inspect(f, func(node ast.Node) bool {
		switch s := node.(type) {
		case *ast.IfStmt:
			if !returnsError(s) {
				n++
			}
		case *ast.ForStmt, *ast.RangeStmt, *ast.CaseClause, *ast.CommClause:
			n++
		}
		return true
	})
	return n
}

func returnsError(s *ast.IfStmt) bool {
	is, ok := s.Cond.(*ast.BinaryExpr)
	if !ok || s.Else != nil || len(s.Body.List) != 1 {
		return false
	}
	_, returns := s.Body.List[0].(*ast.ReturnStmt)
	what, named := is.X.(*ast.Ident)
	return returns && named && what.Name == "err" && is.Op == token.NEQ
}
