// Package words is how numbers, names and times are put for people, in problems and answers.
package words

import (
	"fmt"
	"strings"
	"time"
)

// Plural is a number of things.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Listed is names.
func Listed(names []string) string { return strings.Join(names, ", ") }

// SomeHosts names hosts, or how many of all there are if they are many.
func SomeHosts(names []string, of int) string {
	const most = 4
	switch {
	case len(names) == 1:
		return "host " + names[0]
	case len(names) <= most:
		return "hosts " + strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
	}
	return fmt.Sprintf("%d of %d hosts (%s, ...)", len(names), of, strings.Join(names[:most-1], ", "))
}

// Since is when something began.
func Since(t, now time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case now.Sub(t) < 20*time.Hour:
		return ", since " + t.Local().Format("15:04:05")
	}
	return ", since " + t.Local().Format("2006-01-02 15:04")
}
