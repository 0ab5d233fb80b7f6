package driver

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// lockOrder is the order in which the driver's locks are taken: whoever holds one takes none that stands before it, nor the
// same once more. "docker" is no lock, but a question to Docker: it may wait for who holds what stands behind it.
// docs/design/decisions.md says what each is for.
var lockOrder = []string{"looking", "taking", "publishing", "docker", "core.mu", "inspector.mu"}

// locking is what a function does with locks and whom it calls, in the order of its text.
type locking struct {
	name  string
	steps []lockStep
}

// lockStep is a lock that is taken or let go, or a call of a function of this package.
type lockStep struct {
	at          token.Position
	takes, lets string
	deferred    bool
	calls       string
}

// TestLockOrder reads the package: of each function it knows which locks it takes, itself or by what it calls, and under which.
// Functions are known by their names alone, so that a name that two have counts as both.
func TestLockOrder(t *testing.T) {
	fset := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	functions := map[string][]locking{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Body != nil {
				imported := map[string]bool{}
				for _, i := range file.Imports {
					imported[path.Base(strings.Trim(i.Path.Value, `"`))] = true
				}
				for _, steps := range lockSteps(fset, f, imported) {
					functions[f.Name.Name] = append(functions[f.Name.Name], locking{f.Name.Name, steps})
				}
			}
		}
	}
	held := 0
	for _, same := range functions {
		for _, f := range same {
			var holds []string
			for _, s := range f.steps {
				takes := []string{s.takes}
				if s.calls != "" {
					takes = lockedBy(functions, s.calls, map[string]bool{})
				}
				for _, l := range takes {
					for _, h := range holds {
						if l != "" && slices.Index(lockOrder, l) <= slices.Index(lockOrder, h) {
							t.Errorf("%s: %s holds %s and takes %s (by %s)", s.at, f.name, h, l, s.calls)
						}
					}
				}
				if s.takes != "" {
					holds, held = append(holds, s.takes), held+1
				}
				if s.lets != "" && !s.deferred {
					holds = slices.DeleteFunc(holds, func(h string) bool { return h == s.lets })
				}
			}
		}
	}
	if held < 50 {
		t.Errorf("only %d places were seen that take a lock", held)
	}
}

// lockedBy are the locks that a function takes, itself or by what it calls.
func lockedBy(functions map[string][]locking, name string, seen map[string]bool) (locks []string) {
	if seen[name] {
		return nil
	}
	seen[name] = true
	for _, f := range functions[name] {
		for _, s := range f.steps {
			if s.takes != "" {
				locks = append(locks, s.takes)
			}
			if s.calls != "" {
				locks = append(locks, lockedBy(functions, s.calls, seen)...)
			}
		}
	}
	return locks
}

// lockSteps are those of a function, and of each function in it that runs by itself, or at its end: that one holds nothing of it.
func lockSteps(fset *token.FileSet, f *ast.FuncDecl, imported map[string]bool) (all [][]lockStep) {
	receiver := ""
	if f.Recv != nil {
		receiver = typeName(f.Recv.List[0].Type)
	}
	var walk func(ast.Node)
	walk = func(body ast.Node) {
		deferred, alone := map[*ast.CallExpr]bool{}, map[*ast.FuncLit]bool{}
		var steps []lockStep
		byItself := func(e ast.Expr) {
			if lit, is := e.(*ast.FuncLit); is {
				alone[lit] = true
			}
		}
		ast.Inspect(body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.IfStmt: // who lets go there and returns holds it behind it
				if list := n.Body.List; len(list) > 0 && returns(list[len(list)-1]) {
					for _, s := range n.Body.List {
						if e, is := s.(*ast.ExprStmt); is {
							if call, is := e.X.(*ast.CallExpr); is {
								deferred[call] = true
							}
						}
					}
				}
			case *ast.FuncLit:
				if alone[n] {
					walk(n.Body)
					return false
				}
			case *ast.DeferStmt:
				deferred[n.Call] = true
				byItself(n.Call.Fun)
			case *ast.GoStmt:
				byItself(n.Call.Fun)
			case *ast.CallExpr:
				at := fset.Position(n.Pos())
				switch fun := n.Fun.(type) {
				case *ast.Ident:
					steps = append(steps, lockStep{at: at, calls: fun.Name})
				case *ast.SelectorExpr:
					if fun.Sel.Name == "Go" {
						byItself(n.Args[0])
					}
					lock := lockName(fun.X, receiver)
					on, _ := fun.X.(*ast.SelectorExpr)
					switch id, _ := fun.X.(*ast.Ident); {
					case on != nil && on.Sel.Name == "docker" && fun.Sel.Name != "NewAPIClients" && fun.Sel.Name != "APIClients": // these two ask the kernel
						steps = append(steps, lockStep{at: at, takes: "docker"}, lockStep{at: at, lets: "docker"})
					case lock != "" && fun.Sel.Name == "Lock":
						steps = append(steps, lockStep{at: at, takes: lock})
					case lock != "" && fun.Sel.Name == "Unlock":
						steps = append(steps, lockStep{at: at, lets: lock, deferred: deferred[n]})
					case ourMethod(fun.X) && (id == nil || !imported[id.Name]):
						steps = append(steps, lockStep{at: at, calls: fun.Sel.Name})
					}
				}
			}
			return true
		})
		slices.SortStableFunc(steps, func(a, b lockStep) int { return a.at.Offset - b.at.Offset })
		all = append(all, steps)
	}
	walk(f.Body)
	return all
}

func returns(s ast.Stmt) bool {
	_, is := s.(*ast.ReturnStmt)
	return is
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// lockName is the lock that an expression is, if it is one.
func lockName(e ast.Expr, receiver string) string {
	s, is := e.(*ast.SelectorExpr)
	switch {
	case !is:
		return ""
	case s.Sel.Name != "mu" && slices.Contains(lockOrder, s.Sel.Name):
		return s.Sel.Name
	case s.Sel.Name == "mu" && receiver == "inspector":
		return "inspector.mu"
	case s.Sel.Name == "mu":
		return "core.mu"
	}
	return ""
}

// ourMethod reports whether a method may be of this package: the fields that are other packages' are not.
func ourMethod(e ast.Expr) bool {
	s, is := e.(*ast.SelectorExpr)
	return !is || !slices.Contains([]string{"replica", "alloc", "overlay", "links", "ports", "names", "docker", "cfg", "Log", "mu"}, s.Sel.Name)
}
