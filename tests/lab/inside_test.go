package lab

import "testing"

func TestLiteral(t *testing.T) {
	for url, want := range map[string]bool{
		"http://192.0.2.1:8080/":  true,
		"http://[fd00::1]:80/":    true,
		"udp://192.0.2.1:53/3000": true,
		"sctp://192.0.2.1:80":     false, // by system calls of its own
		"http://containers/":      false, // a name
		"https://192.0.2.1/":      false,
		"192.0.2.1":               false,
	} {
		if got := literal(url); got != want {
			t.Errorf("%s: %v", url, got)
		}
	}
}
