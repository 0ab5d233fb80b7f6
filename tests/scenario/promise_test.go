package scenario

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var quoted = regexp.MustCompile("`([^`]+)`")

// TestPromise: each problem that tests/README.md says status to name is asked of status, in the
// words that it says, by the scenario that it says; and what shows the rest is there.
func TestPromise(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## \"All is well\"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("tests/README.md has no such section")
	}
	table, named, mended := 0, 0, 0
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "|---") {
			table++
			continue
		}
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], " what ") && !strings.Contains(cells[3], ".txtar") {
			continue
		}
		switch table {
		case 1:
			named++
			words := quoted.FindStringSubmatch(cells[2])
			if words == nil || !asksStatus(scenarioText(t, cells[3]), words[1]) {
				t.Errorf("no scenario asks status for it:%s", line)
			}
		case 2:
			mended++
			shown(t, line, cells[3])
		}
	}
	if named < 30 || mended < 10 {
		t.Errorf("%d problems are named, and %d need not be: the tables are not found", named, mended)
	}
}

// scenarioText is the scenarios of a name, of all tiers.
func scenarioText(t *testing.T, cell string) (text string) {
	t.Helper()
	for _, name := range quoted.FindAllStringSubmatch(cell, -1) {
		if !strings.HasSuffix(name[1], ".txtar") {
			continue
		}
		found, _ := filepath.Glob("../*/" + name[1]) // the pattern is right
		if len(found) == 0 {
			t.Errorf("there is no scenario %s", name[1])
		}
		for _, file := range found {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text += string(b)
		}
	}
	return text
}

// asksStatus: a match on what status prints, or on the output of the line before, has the words.
func asksStatus(text, words string) bool {
	status := false
	for line := range strings.Lines(text) {
		command, _, _ := strings.Cut(line, "#")
		if !strings.HasPrefix(command, "stdout") {
			status = strings.Contains(command, "status")
		}
		if status && strings.Contains(line, words) && !strings.HasPrefix(line, "!") && !strings.Contains(line, " ! match") {
			return true
		}
	}
	return false
}

// shown: the scenarios and tests that a cell names are there.
func shown(t *testing.T, line, cell string) {
	t.Helper()
	scenarioText(t, cell)
	directory, any := "", false
	for _, word := range strings.Fields(strings.ReplaceAll(cell, ",", " ")) {
		name := strings.Trim(word, "`")
		switch {
		case strings.HasSuffix(name, ".txtar"):
			any = true
		case strings.HasPrefix(name, "Test"):
			any = true
			if !hasTest(t, directory, name) {
				t.Errorf("%s has no %s:%s", directory, name, line)
			}
		default:
			directory = name
		}
	}
	if !any {
		t.Errorf("nothing shows it:%s", line)
	}
}

func hasTest(t *testing.T, directory, name string) bool {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join("../..", directory, "*_test.go")) // the pattern is right
	return slices.ContainsFunc(files, func(file string) bool {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(b), "\nfunc "+name+"(t ")
	})
}
