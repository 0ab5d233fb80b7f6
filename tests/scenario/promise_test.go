package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
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
			if words == nil || !asksStatus(scenarioText(t, cells[3]), words[1], patience(line)) {
				t.Errorf("no scenario asks status for it, within %v: %s", patience(line), line)
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

// patience is how long a scenario may wait for the words of a row: ten seconds, or what the row says.
func patience(row string) time.Duration {
	if said := within.FindStringSubmatch(row); said != nil {
		seconds, _ := strconv.Atoi(said[1]) // digits
		return time.Duration(seconds) * time.Second
	}
	return 10 * time.Second
}

var (
	within  = regexp.MustCompile(`within (\d+) s\b`)
	waiting = regexp.MustCompile(`^(?:\[[^\]]*\] *)?eventually (\S+) `)
)

// asksStatus: a match on what status prints, or on the output of the line before, has the words, and
// waits for them no longer than that.
func asksStatus(text, words string, most time.Duration) bool {
	status := false
	for line := range strings.Lines(text) {
		command, _, _ := strings.Cut(line, "#")
		if !strings.HasPrefix(command, "stdout") {
			status = strings.Contains(command, "status")
		}
		if waits := waiting.FindStringSubmatch(line); waits != nil {
			if d, err := time.ParseDuration(waits[1]); err != nil || d > most {
				continue
			}
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

// faults are the rows that docs/operate/status-promise.md has to have: a letter and how many.
var faults = map[string]int{"A": 12, "B": 7, "C": 4, "D": 7, "E": 9, "F": 14, "G": 3}

// toldToRun is what a cell may quote that is no word of status.
var toldToRun = regexp.MustCompile(`^(grapevine |make |--)`)

// TestStatusPromise is the same of docs/operate/status-promise.md: each fault is there, and what its row
// names: the words of status, asked for by a scenario, or tests.
func TestStatusPromise(t *testing.T) {
	text, err := os.ReadFile("../../docs/operate/status-promise.md")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || strings.HasPrefix(line, "|---") || !strings.Contains(cells[4], ".txtar") && !strings.Contains(cells[4], "Test") {
			continue
		}
		there[strings.TrimSpace(cells[1])] = true
		shown(t, line, cells[4])
		for _, words := range quoted.FindAllStringSubmatch(cells[3], -1) {
			if !toldToRun.MatchString(words[1]) && !asksStatus(scenarioText(t, cells[4]), words[1], patience(line)) {
				t.Errorf("no scenario asks status for %q within %v: %s", words[1], patience(line), line)
			}
		}
	}
	for letter, n := range faults {
		for i := 1; i <= n; i++ {
			if id := fmt.Sprint(letter, i); !there[id] {
				t.Errorf("fault %s is not there", id)
			}
		}
	}
}

// TestReports: docs/measurements/reports.md has fifty reports of others and more, and what it says to go on trying each is there.
func TestReports(t *testing.T) {
	text, err := os.ReadFile("../../docs/measurements/reports.md")
	if err != nil {
		t.Fatal(err)
	}
	reports := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || !strings.HasPrefix(cells[1], " [") {
			continue
		}
		for _, link := range link.FindAllString(cells[1], -1) {
			reports[link] = true
		}
		held := cells[len(cells)-2]
		if strings.HasPrefix(strings.TrimSpace(held), "tried") || strings.Contains(held, "](") {
			continue // by hand, on other releases of Docker as well if it says so; or a page
		}
		var named []string
		for _, name := range quoted.FindAllStringSubmatch(held, -1) {
			if _, err := os.Stat(filepath.Join("../scenarios", strings.TrimSuffix(name[1], ".txtar")+".txtar")); err == nil {
				named = append(named, name[1])
			} else if directory, err := os.Stat(filepath.Join("../..", name[1])); err == nil && directory.IsDir() {
				named = append(named, name[1])
				if test := testName.FindString(held); test != "" && !hasTest(t, name[1], test) {
					t.Errorf("%s has no %s: %s", name[1], test, line)
				}
			} else {
				t.Errorf("there is no scenario or directory %s: %s", name[1], line)
			}
		}
		if named == nil {
			t.Errorf("nothing holds it: %s", line)
		}
	}
	if len(reports) < 50 {
		t.Errorf("there are %d reports", len(reports))
	}
}

var (
	link     = regexp.MustCompile(`https://github\.com/[^)]+`)
	testName = regexp.MustCompile(`\bTest[A-Z]\w+`)
)
