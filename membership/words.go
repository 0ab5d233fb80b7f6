package membership

import (
	"fmt"
	"strings"
)

// plural is a number of things, for people.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// listed is names, for people.
func listed(names []string) string { return strings.Join(names, ", ") }
