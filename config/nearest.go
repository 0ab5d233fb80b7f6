package config

import "fmt"

// suggest names the known variable nearest to an unknown one.
func suggest(key string) string {
	best, distance := "", len(key)
	for _, s := range Table {
		if d := edits(key, s.Env()); d < distance {
			best, distance = s.Env(), d
		}
	}
	if distance > (len(key)-len(prefix))/2 { // another word, not a slip
		return "`grapevine agent --help` lists the settings"
	}
	return fmt.Sprintf("did you mean %s?", best)
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
