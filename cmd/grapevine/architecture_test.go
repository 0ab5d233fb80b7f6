package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source is what a package declares, test files left out.
type source struct {
	funcs   map[string]*ast.FuncType // "Name", or "Type.Name"
	types   map[string][]string      // with what they embed
	methods map[string][]string      // of interfaces
	holds   map[string]string        // of structs with one field alone: its type
	imports map[string]string        // packages of this module, by the name that files know them by
}

// sources are this module's packages, by their directories.
func sources(t *testing.T) map[string]source {
	t.Helper()
	out := map[string]source{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != root || d.Name() == "build" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, _ := filepath.Rel(root, filepath.Dir(name))
		if _, ok := out[dir]; !ok {
			out[dir] = source{map[string]*ast.FuncType{}, map[string][]string{}, map[string][]string{}, map[string]string{}, map[string]string{}}
		}
		out[dir].declare(file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s source) declare(file *ast.File) {
	for _, i := range file.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		if p, ours := strings.CutPrefix(p, module); ours {
			name := path.Base(p)
			if i.Name != nil {
				name = i.Name.Name
			}
			s.imports[name] = p
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = typeOf(d.Recv.List[0].Type) + "." + name
			}
			s.funcs[name] = d.Type
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok {
					s.types[t.Name.Name], s.methods[t.Name.Name] = members(t)
					if of, ok := t.Type.(*ast.StructType); ok && of.Fields.NumFields() == 1 {
						s.holds[t.Name.Name] = text(of.Fields.List[0].Type)
					}
				}
			}
		}
	}
}

// typeOf names a type: that of a pointer's target, without its parameters.
func typeOf(e ast.Expr) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(text(e), "*"), "[")
	return name
}

// members are what a struct or an interface embeds, and the methods of an interface.
func members(t *ast.TypeSpec) (embedded, methods []string) {
	var fields *ast.FieldList
	switch of := t.Type.(type) {
	case *ast.StructType:
		fields = of.Fields
	case *ast.InterfaceType:
		fields = of.Methods
		for _, f := range fields.List {
			for _, n := range f.Names {
				methods = append(methods, n.Name)
			}
		}
	default:
		return nil, nil
	}
	for _, f := range fields.List {
		if len(f.Names) == 0 {
			embedded = append(embedded, typeOf(f.Type))
		}
	}
	return embedded, methods
}

// find returns a function, or a method that a type has of its own or of what it embeds.
func (s source) find(name string) (*ast.FuncType, bool) {
	if f, ok := s.funcs[name]; ok {
		return f, true
	}
	typ, method, _ := strings.Cut(name, ".")
	for _, e := range s.types[typ] {
		if f, ok := s.find(e + "." + method); ok && method != "" {
			return f, true
		}
	}
	return nil, false
}

func text(n ast.Node) string {
	var b strings.Builder
	_ = printer.Fprint(&b, token.NewFileSet(), n)
	return b.String()
}

// shape is the types of parameters and results. What has a name only ("ctx") is of any type, as is
// what the pattern's own package need not name.
func shape(f *ast.FuncType) (out []string) {
	for _, list := range []*ast.FieldList{f.Params, f.Results} {
		if list != nil {
			for _, p := range list.List {
				for range max(1, len(p.Names)) {
					out = append(out, text(p.Type))
				}
			}
		}
		out = append(out, "|")
	}
	return out
}

var bare = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)

func agrees(said, is []string) bool {
	if len(said) != len(is) {
		return false
	}
	for i := range said {
		basic := slices.Contains([]string{"string", "int", "bool", "error", "uint8", "uint16", "uint32", "uint64", "any"}, said[i])
		if said[i] != is[i] && (basic || !bare.MatchString(said[i])) {
			return false
		}
	}
	return true
}

var (
	section   = regexp.MustCompile("(?m)^`([a-z/]+)`[^\n]*:\n((?:\n|    [^\n]*\n|        [^\n]*\n)+)")
	receiver  = regexp.MustCompile(`^func \(\w+ \*?(\w+)\) `)
	typeName  = regexp.MustCompile(`\btype (\w+)`)
	tableRow  = regexp.MustCompile("(?m)^\\| (`[^|]*`)[^|]*\\|")
	backticks = regexp.MustCompile("`([^`]+)`")
)

// claims yields the functions of a line: "func (r *Ring) Fresh(Claim) bool; func (r *Ring) Len() int".
func claims(line string) (out [][2]string) {
	line, _, _ = strings.Cut(line, " // ")
	line, _, _ = strings.Cut(line, "// ")
	of := ""
	for _, part := range strings.Split(strings.TrimSpace(line), "; ") {
		part = strings.TrimSpace(part)
		if m := receiver.FindStringSubmatch(part); m != nil {
			of, part = m[1]+".", strings.TrimPrefix(part, m[0])
		} else if strings.HasPrefix(part, "func ") {
			of, part = "", strings.TrimPrefix(part, "func ")
		} else if of == "" {
			continue
		}
		names, rest, ok := strings.Cut(part, "(")
		if !ok {
			continue
		}
		for _, n := range strings.Split(names, "/") {
			out = append(out, [2]string{of + n, "func(" + rest})
		}
	}
	return out
}

// TestArchitecture: docs/design/architecture.md names every package, and what it says of functions and
// types of packages is so.
func TestArchitecture(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "design", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc, pkgs := string(b), sources(t)
	named := map[string]bool{}
	for _, row := range tableRow.FindAllStringSubmatch(doc, -1) {
		for _, m := range backticks.FindAllStringSubmatch(row[1], -1) {
			named[m[1]] = true
			if _, ok := pkgs[m[1]]; !ok {
				t.Errorf("there is no package %s", m[1])
			}
		}
	}
	for dir := range pkgs {
		if !named[dir] && !strings.HasPrefix(dir, "tests/") && !strings.HasSuffix(dir, "test") && dir != "scripts" && dir != "." {
			t.Errorf("package %s is not named", dir)
		}
	}
	checked := 0
	for _, s := range section.FindAllStringSubmatch(doc, -1) {
		pkg, ok := pkgs[s[1]]
		for dir, p := range pkgs {
			if !ok && strings.HasSuffix(dir, "/"+s[1]) {
				pkg, ok = p, true
			}
		}
		if !ok {
			t.Errorf("there is no package %s", s[1])
			continue
		}
		checked += pkg.check(t, s[1], s[2])
	}
	if checked < 50 {
		t.Errorf("%d functions were found in the document: its form has changed", checked)
	}
}

// check compares a section with its package, and counts functions.
func (s source) check(t *testing.T, name, lines string) (n int) {
	for line := range strings.Lines(lines) {
		if m := typeName.FindStringSubmatch(line); m != nil {
			if _, ok := s.types[m[1]]; !ok {
				t.Errorf("%s has no type %s", name, m[1])
			}
		}
		if !strings.HasPrefix(strings.TrimSpace(line), "func ") {
			continue
		}
		for _, c := range claims(line) {
			n++
			is, ok := s.find(c[0])
			if !ok {
				t.Errorf("%s has no %s", name, c[0])
				continue
			}
			said, err := parser.ParseExpr(strings.ReplaceAll(c[1], "(ctx, ", "(ctx context.Context, "))
			f, ok := said.(*ast.FuncType)
			if err != nil || !ok {
				continue // in words
			}
			if got := fmt.Sprint(shape(is)); !agrees(shape(f), shape(is)) {
				t.Errorf("%s: %s is said to be %s, and is %s %s", name, c[0], c[1], text(is), got)
			}
		}
	}
	return n
}
