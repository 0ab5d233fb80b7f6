package cluster

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestOneRowOneFile: a kind of record is one row of kinds and one file. All that a body says as such is there, and no other body; and
// nobody asks for a kind by its number where a property of the row would say why.
func TestOneRowOneFile(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	bodies, where := map[string]string{}, map[string]string{} // by file, by body
	var asked []struct{ file, kind string }
	var methods []struct{ file, of, name string }
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok && strings.HasPrefix(id.Name, "Kind") && len(id.Name) > len("Kind") {
				asked = append(asked, struct{ file, kind string }{name, strings.TrimPrefix(id.Name, "Kind")})
			}
			return true
		})
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			of, ok := f.Recv.List[0].Type.(*ast.Ident)
			if !ok {
				continue
			}
			if f.Name.Name == "speaker" && of.Name != "opaque" {
				if other, taken := bodies[name]; taken {
					t.Errorf("%s has both %s and %s", name, other, of.Name)
				}
				bodies[name], where[of.Name] = of.Name, name
			}
			methods = append(methods, struct{ file, of, name string }{name, of.Name, f.Name.Name})
		}
	}
	for _, m := range methods {
		if home, is := where[m.of]; is && m.file != home && (m.name == "Key" || strings.HasPrefix(m.name, "valid")) {
			t.Errorf("%s of %s is in %s, and not in %s", m.name, m.of, m.file, home)
		}
	}
	for _, a := range asked {
		// Hosts and the ring are what the cluster stands on, and have rules of their own.
		if a.file != "kinds.go" && a.file != where[a.kind] && a.kind != "Node" && a.kind != "Claim" {
			t.Errorf("%s asks for Kind%s: let a property of its row say why", a.file, a.kind)
		}
	}
	rows := 0
	for k := range kinds {
		if Kind(k).known() {
			rows++
		}
	}
	if rows != len(where) {
		t.Errorf("%d kinds have a row, and %d bodies a file", rows, len(where))
	}
}
