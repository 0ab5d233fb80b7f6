package config

import (
	"fmt"
	"strings"
)

// Nearest is the one of the known words that a word is a slip of; empty: of none, or of several alike.
func Nearest(word string, known []string) string {
	best, distance := "", len(word)/2+1 // more is another word
	for _, k := range known {
		switch d := edits(word, k); {
		case d < distance:
			best, distance = k, d
		case d == distance:
			best = ""
		}
	}
	return best
}

// suggest names the known variable nearest to an unknown one.
func suggest(key string) string {
	var names []string
	for _, s := range Table {
		names = append(names, strings.TrimPrefix(s.Env(), prefix))
	}
	if best := Nearest(strings.TrimPrefix(key, prefix), names); best != "" {
		return fmt.Sprintf("did you mean %s?", prefix+best)
	}
	return "`grapevine agent --help` lists the settings"
}

// edits is the Levenshtein distance of two ASCII strings.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
