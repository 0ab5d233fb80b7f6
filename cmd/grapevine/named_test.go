package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// aPath is a file or a directory of this repository, as docs name it.
	aPath = regexp.MustCompile("`([A-Za-z.][\\w.-]*(?:/[\\w.*-]+)+/?|[a-z_0-9]+\\.go)`")
	// aTest is a test, a fuzz test or a benchmark.
	aTest = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)`")
	// ofPackage is a package and its tests, as "`host/nat` TestForbid, TestAgain"; bareTest is one of them.
	ofPackage = regexp.MustCompile("`([a-z][a-z0-9/]*)`:? ((?:Test|Fuzz|Benchmark)[A-Z]\\w*(?:(?:, | and )(?:Test|Fuzz|Benchmark)[A-Z]\\w*)*)")
	bareTest  = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w*[a-z0-9]\b`)
	// isOf is the other spelling: "`TestCut` of `host/lan`".
	isOf = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)` of `([a-z][a-z0-9/]*)`")
	// declared is one in the source.
	declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
)

// notOurs look like paths and are others' words.
var notOurs = map[string]bool{"ofproto/trace": true}

// tracked are the files that git knows or would take, by their paths from the root.
func tracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil && os.Getenv("CI") == "" {
		t.Skipf("not a git checkout: %v", err)
	}
	if err != nil {
		t.Fatalf("list the files that git knows: %v", err)
	}
	return strings.Fields(string(out))
}

// exists reports whether a path that a document names is there: from the root, or, where it is the end
// of one, as "nat/policy.go" is in the section on host.
func exists(root string, files []string, path string) bool {
	path = strings.TrimSuffix(path, "/")
	if found, err := filepath.Glob(filepath.Join(root, path)); err == nil && len(found) > 0 {
		return true
	}
	for _, f := range files {
		if strings.HasSuffix(f, "/"+path) || strings.Contains("/"+f, "/"+path+"/") {
			return true
		}
	}
	return false
}

// TestDocsNameWhatIsThere: a test that a document names exists, and so does a file or directory that one
// about the design, or CONTRIBUTING, names.
func TestDocsNameWhatIsThere(t *testing.T) {
	root, files := filepath.Join("..", ".."), tracked(t)
	tests, in := map[string]bool{}, map[string][]string{} // in: of each the packages
	var docs []string
	for _, f := range files {
		switch {
		case strings.HasSuffix(f, "_test.go"):
			b, err := os.ReadFile(filepath.Join(root, f))
			if os.IsNotExist(err) {
				continue // removed, and not yet committed
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range declared.FindAllSubmatch(b, -1) {
				tests[string(m[1])] = true
				in[string(m[1])] = append(in[string(m[1])], filepath.Dir(f))
			}
		case strings.HasSuffix(f, ".md"):
			docs = append(docs, f)
		}
	}
	checked := 0
	for _, f := range docs {
		b, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			continue
		}
		for _, m := range aTest.FindAllStringSubmatch(string(b), -1) {
			if !tests[m[1]] {
				t.Errorf("%s names the test %s, which is not there", f, m[1])
			}
		}
		said := ofPackage.FindAllStringSubmatch(string(b), -1)
		for _, m := range isOf.FindAllStringSubmatch(string(b), -1) {
			said = append(said, []string{"", m[2], m[1]})
		}
		for _, m := range said {
			if info, err := os.Stat(filepath.Join(root, m[1])); err != nil || !info.IsDir() {
				continue // a word, and no package
			}
			for _, test := range bareTest.FindAllString(m[2], -1) {
				if !slices.Contains(in[test], m[1]) {
					t.Errorf("%s names the test %s of %s, which is in %v", f, test, m[1], in[test])
				}
				checked++
			}
		}
		if !strings.HasPrefix(f, "docs/design/") && f != "CONTRIBUTING.md" {
			continue
		}
		for _, m := range aPath.FindAllStringSubmatch(string(b), -1) {
			if !notOurs[m[1]] && !exists(root, files, m[1]) {
				t.Errorf("%s names %s, which is not there", f, m[1])
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d tests are named with their package: has the form changed?", checked)
	}
}

// TestDecisionsAreShort: a decision is one short section.
func TestDecisionsAreShort(t *testing.T) {
	const most = 300 // words
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "design", "decisions.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(b), "\n### ")
	if len(sections) < 200 {
		t.Errorf("%d sections: has the form changed?", len(sections))
	}
	for i, s := range sections {
		heading, _, _ := strings.Cut(s, "\n")
		if n := len(strings.Fields(s)); n > most {
			t.Errorf("%q has %d words, and may have %d: it is several decisions", heading, n, most)
		}
		if i+1 < len(sections) && !strings.HasSuffix(s, "\n") {
			t.Errorf("no blank line follows %q", heading)
		}
	}
}

// TestGlossaryIsInOrder: a word is found where it is looked for.
func TestGlossaryIsInOrder(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "design", "glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	for line := range strings.Lines(string(b)) {
		if word, row := strings.CutPrefix(line, "| "); row && !strings.HasPrefix(line, "| word ") {
			word, _, _ = strings.Cut(word, " |")
			if word = strings.ToLower(word); word < last {
				t.Errorf("%s comes after %s", word, last)
			}
			last = word
		}
	}
	if last == "" {
		t.Error("there is no word")
	}
}
