package pipeline

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPrioritiesAreNamed: no flow has a number for its priority. Each has a name, which begins as its stage's does, and stands with
// the stage's others, the highest first, before the first function of the stage's file, which adds flows of it. What is of one matter in several stages is a file of its own.
func TestPrioritiesAreNamed(t *testing.T) {
	fset := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	takes := takingPriorities(files)
	seen, blocks := 0, 0
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				at, is := takes[calledName(n)]
				if !is || at >= len(n.Args) {
					break
				}
				seen++
				noNumber(t, fset, n.Args[at])
				if at > 0 {
					ofStage(t, fset, n.Args[at-1], n.Args[at])
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if id, is := left.(*ast.Ident); is && id.Name == "priority" && len(n.Rhs) == len(n.Lhs) {
						noNumber(t, fset, n.Rhs[i])
					}
				}
			case *ast.BinaryExpr:
				for _, pair := range [][2]ast.Expr{{n.X, n.Y}, {n.Y, n.X}} {
					if s, is := pair[0].(*ast.SelectorExpr); is && s.Sel.Name == "Priority" && (n.Op == token.EQL || n.Op == token.NEQ) {
						noNumber(t, fset, pair[1])
					}
				}
			case *ast.GenDecl:
				if n.Tok == token.CONST && strings.HasPrefix(n.Doc.Text(), "The priorities of ") && !strings.HasPrefix(n.Doc.Text(), "The priorities of rules.") {
					blocks++
					falling(t, fset, n)
					atHome(t, fset, n, f)
				}
			}
			return true
		})
	}
	if seen < 170 || blocks < 14 {
		t.Errorf("%d flows and %d blocks of priorities were seen: is that all?", seen, blocks)
	}
}

// takingPriorities are the functions that have a parameter named priority, and which one it is.
func takingPriorities(files []*ast.File) map[string]int {
	takes := map[string]int{}
	note := func(name string, f *ast.FuncType) {
		at := 0
		for _, field := range f.Params.List {
			for _, p := range field.Names {
				if p.Name == "priority" {
					takes[name] = at
				}
				at++
			}
		}
	}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				note(n.Name.Name, n.Type)
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					id, named := left.(*ast.Ident)
					if !named || len(n.Rhs) != len(n.Lhs) {
						continue
					}
					if f, is := n.Rhs[i].(*ast.FuncLit); is {
						note(id.Name, f.Type)
					}
				}
			}
			return true
		})
	}
	return takes
}

func calledName(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

func noNumber(t *testing.T, fset *token.FileSet, e ast.Expr) {
	ast.Inspect(e, func(n ast.Node) bool {
		if lit, is := n.(*ast.BasicLit); is && lit.Kind == token.INT {
			t.Errorf("%s: a priority is the number %s here: give it a name, on top of the stage's file", fset.Position(lit.Pos()), lit.Value)
		}
		return true
	})
}

// prefixes are how names of priorities begin where that is not the stage's name.
var prefixes = map[string][]string{
	"SpoofGuard": {"spoof"}, "ARPResponder": {"arp"}, "NDReply": {"ndReply"}, "VNIDCheck": {"vnidCheck"}, "RejectStage": {"reject"},
	"Forwarding": {"forwarding", "outward"}, "ExposeBack": {"exposeBack", "outward"},
	"EgressPolicy": {"rules"}, "IngressPolicy": {"rules"}, "EgressRules": {"rules"}, "IngressRules": {"rules"},
}

// ofStage: a stage that is named has a priority of its own.
func ofStage(t *testing.T, fset *token.FileSet, stage, priority ast.Expr) {
	s, named := stage.(*ast.Ident)
	p, is := priority.(*ast.Ident)
	if !named || !is || !ast.IsExported(s.Name) || p.Name == "otherwise" || p.Name == "priority" {
		return
	}
	begins := prefixes[s.Name]
	if begins == nil {
		begins = []string{strings.ToLower(s.Name[:1]) + s.Name[1:]}
	}
	if !slices.ContainsFunc(begins, func(b string) bool { return strings.HasPrefix(p.Name, b) }) {
		t.Errorf("%s: %s is no priority of %s", fset.Position(p.Pos()), p.Name, s.Name)
	}
}

// atHome: a block of priorities is on top of a file that adds flows with them.
func atHome(t *testing.T, fset *token.FileSet, block *ast.GenDecl, in *ast.File) {
	names := map[string]bool{}
	for _, s := range block.Specs {
		for _, id := range s.(*ast.ValueSpec).Names {
			names[id.Name] = true
		}
	}
	for _, d := range in.Decls {
		if f, is := d.(*ast.FuncDecl); is && f.Pos() < block.Pos() {
			t.Errorf("%s: priorities stand below %s: they come first in the file", fset.Position(block.Pos()), f.Name.Name)
			break
		}
	}
	flows := 0
	for _, d := range in.Decls {
		if f, is := d.(*ast.FuncDecl); is && adds(f) {
			ast.Inspect(d, func(x ast.Node) bool {
				if id, is := x.(*ast.Ident); is && names[id.Name] {
					flows++
				}
				return true
			})
		}
	}
	if flows == 0 {
		t.Errorf("%s: no flow that is added in this file has these priorities", fset.Position(block.Pos()))
	}
}

// adds reports whether a function adds flows: it has the compiler.
func adds(f *ast.FuncDecl) bool {
	fields := f.Type.Params.List
	if f.Recv != nil {
		fields = slices.Concat(f.Recv.List, fields)
	}
	return slices.ContainsFunc(fields, func(p *ast.Field) bool {
		star, is := p.Type.(*ast.StarExpr)
		if !is {
			return false
		}
		id, is := star.X.(*ast.Ident)
		return is && id.Name == "compiler"
	})
}

func falling(t *testing.T, fset *token.FileSet, d *ast.GenDecl) {
	last := 1 << 16
	for _, s := range d.Specs {
		v := s.(*ast.ValueSpec)
		if len(v.Names) != 1 || len(v.Values) != 1 {
			t.Errorf("%s: a line each, please", fset.Position(v.Pos()))
			continue
		}
		lit, is := v.Values[0].(*ast.BasicLit)
		if !is {
			continue
		}
		if n, err := strconv.Atoi(lit.Value); err != nil || n > last {
			t.Errorf("%s: %s is %s, below one of %d: the highest comes first", fset.Position(v.Pos()), v.Names[0].Name, lit.Value, last)
		} else {
			last = n
		}
	}
}
