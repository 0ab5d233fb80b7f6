package link

import (
	"strings"
	"testing"
)

func TestStaleReader(t *testing.T) {
	const head = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n"
	for _, c := range []struct {
		sockets string // interface and protocol
		want    bool
	}{
		{"", false}, // no switch runs
		{"16 0003", false},
		{"-1 0003", true},
		{"-1 0003,13 0003", true},
		{"-1 0003,16 0003", false}, // somebody else's is stale
		{"16 88b5,-1 0003", true},
		{"-1 88b5,0 0000", false},
	} {
		list := head
		for s := range strings.SplitSeq(c.sockets, ",") {
			if index, proto, ok := strings.Cut(s, " "); ok {
				list += "00000000b620efa8 2      3    " + proto + "   " + index + "    1 0      0      4537744\n"
			}
		}
		if got := staleReader(list, 16); got != c.want {
			t.Errorf("%q: %v", c.sockets, got)
		}
	}
}
