package words

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable is a text of another host's as a terminal may have it: nothing in it moves the cursor.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
