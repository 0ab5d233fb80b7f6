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
const mostBranches = 3

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
		for of, n := range branchesOf(file) {
			if n > mostBranches {
				t.Errorf("%s: %s has %d branches, and may have %d: what it decides is for a room of its own", name, of, n, mostBranches)
			}
		}
	}
}

// TestBranches: a choice counts however it is written, and wherever it stands.
func TestBranches(t *testing.T) {
	const source = `package p

var f = func(a, b bool) {
	if a && b || !a {
	}
}

func g(err error, n int) error {
	if err != nil {
		return err
	}
	h := func() bool { return n > 1 && n < 3 }
	switch n {
	case 1:
	case 2:
	}
	select {
	default:
	}
	for range n {
	}
	return nil
}

func none(err error) error {
	if err != nil {
		return err
	}
	return nil
}
`
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	got := branchesOf(file)
	for of, want := range map[string]int{"f": 3, "g": 5, "none": 0} {
		if got[of] != want {
			t.Errorf("%s has %d branches, want %d", of, got[of], want)
		}
	}
}

// branchesOf counts the choices in each function of a file, and in each variable of its package: ifs, loops, cases, && and ||, those
// of function literals as well. The return of an error is none.
func branchesOf(file *ast.File) map[string]int {
	found := map[string]int{}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			found[d.Name.Name] += branches(d)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if v, ok := s.(*ast.ValueSpec); ok {
					found[v.Names[0].Name] += branches(v)
				}
			}
		}
	}
	return found
}

func branches(of ast.Node) (n int) {
	ast.Inspect(of, func(node ast.Node) bool {
		switch s := node.(type) {
		case *ast.IfStmt:
			if !returnsError(s) {
				n++
			}
		case *ast.ForStmt, *ast.RangeStmt, *ast.CaseClause, *ast.CommClause:
			n++
		case *ast.BinaryExpr:
			if s.Op == token.LAND || s.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// returnsError is `if err != nil { return ... }`.
func returnsError(s *ast.IfStmt) bool {
	is, ok := s.Cond.(*ast.BinaryExpr)
	if !ok || s.Else != nil || len(s.Body.List) != 1 {
		return false
	}
	_, returns := s.Body.List[0].(*ast.ReturnStmt)
	what, named := is.X.(*ast.Ident)
	return returns && named && what.Name == "err" && is.Op == token.NEQ
}
