package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

// TestProblemsHaveCodes: each place in the source that makes a problem says of which kind it is, and
// each kind is made somewhere.
func TestProblemsHaveCodes(t *testing.T) {
	declared, used := map[string]bool{}, map[string]bool{}
	for _, f := range tracked(t) {
		if !strings.HasSuffix(f, ".go") || strings.HasSuffix(f, "_test.go") {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, filepath.Join("..", "..", f), nil, 0)
		if os.IsNotExist(err) {
			continue // removed, and not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				if list, ok := n.Type.(*ast.ArrayType); ok && isProblem(list.Elt) {
					for _, e := range n.Elts {
						if c, ok := e.(*ast.CompositeLit); ok && !hasCode(c) {
							t.Errorf("%s: a problem without a Code", files.Position(c.Pos()))
						}
					}
				}
				if isProblem(n.Type) && len(n.Elts) > 0 && !hasCode(n) {
					t.Errorf("%s: a problem without a Code", files.Position(n.Pos()))
				}
			case *ast.SelectorExpr:
				if of, ok := n.X.(*ast.Ident); ok && of.Name == "api" {
					used[n.Sel.Name] = true
				}
			case *ast.ValueSpec:
				if kind, ok := n.Type.(*ast.Ident); ok && f == "api/codes.go" && kind.Name == "Code" {
					declared[n.Names[0].Name] = true
				}
			}
			return true
		})
	}
	for name := range declared {
		if !used[name] {
			t.Errorf("no problem is api.%s", name)
		}
	}
	codes := map[api.Code]bool{}
	for _, k := range api.Kinds {
		if codes[k.Code] || !regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`).MatchString(string(k.Code)) {
			t.Errorf("%s is there twice, or is no code", k.Code)
		}
		codes[k.Code] = true
	}
	if len(codes) != len(declared) {
		t.Errorf("%d codes are declared, and %d are in api.Kinds", len(declared), len(codes))
	}
}

func isProblem(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Problem" && fmt.Sprint(s.X) == "api"
}

func hasCode(c *ast.CompositeLit) bool {
	for _, e := range c.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok && fmt.Sprint(pair.Key) == "Code" {
			return true
		}
	}
	return false
}

// TestProblemsAreListed: docs/operate/troubleshooting.md has an anchor for each code, at which it says what it
// means, and alerts name no code that there is not.
func TestProblemsAreListed(t *testing.T) {
	const page, begin, end = "../../docs/operate/troubleshooting.md", "<!-- problems: made by make docs -->\n", "<!-- end of problems -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(text), begin)
	_, tail, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("%s has no place for the problems", page)
	}
	var b strings.Builder
	b.WriteString(head + begin + "\n| code | severity | what it means | what comes first |\n|---|---|---|---|\n")
	known := map[string]bool{}
	for _, k := range api.Kinds {
		known[string(k.Code)] = true
		fmt.Fprintf(&b, "| <a id=\"%s\"></a>`%s` | %s | %s | %s |\n", k.Code, k.Code, k.Severity, k.Means, k.Do)
	}
	b.WriteString("\n" + end + tail)
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(text) != b.String() {
		t.Errorf("%s is not what api.Kinds say: make docs", page)
	}
	alerts, err := os.ReadFile("../../docs/operate/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`code=~?"([^"]*)"`).FindAllSubmatch(alerts, -1) {
		for _, code := range strings.Split(string(m[1]), "|") {
			if !known[code] {
				t.Errorf("alerts.yml names the code %s, which is none", code)
			}
		}
	}
	if !strings.Contains(string(alerts), "troubleshooting.md#{{ $labels.code }}") {
		t.Error("alerts.yml does not lead to the codes' anchors")
	}
}
