package nat

import "strings"

// Words splits a rule as `iptables -S` and iptables-save print it: at blanks, but not within double
// quotes, which a comment or a log prefix of several words has; there, a backslash quotes what follows.
func Words(rule string) (words []string) {
	var word strings.Builder
	begun, quoted, escaped := false, false, false
	for _, c := range rule {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted, begun = !quoted, true
		case (c == ' ' || c == '\t' || c == '\n') && !quoted:
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words
}
