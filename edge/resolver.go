package edge

import (
	"os"
	"strings"
	"sync/atomic"

	"github.com/grapevine-net/grapevine/dns"
)

// resolvers has the servers that programs of a host ask.
const resolvers = "/etc/resolv.conf"

// firstServer knows whether programs have asked the agent: whoever never let them is not told of it.
type firstServer struct{ was atomic.Bool }

// look returns the first server in a file; "": there is none, or no file.
func (f *firstServer) look(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	first := firstNameserver(string(text))
	if first == dns.HostAddress.Addr().String() {
		f.was.Store(true)
	}
	return first
}

// lost reports whether the agent was the first, and is not with what is the first now.
func (f *firstServer) lost(first string) bool {
	return f.was.Load() && first != dns.HostAddress.Addr().String()
}

// firstNameserver is the one that programs ask first (resolv.conf(5)).
func firstNameserver(text string) string {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "nameserver" {
			return words[1]
		}
	}
	return ""
}
