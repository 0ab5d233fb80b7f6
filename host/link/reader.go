package link

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// StaleReader reports whether a packet socket of this namespace reads an interface that is gone, while
// none reads the one called name: a switch that reads interfaces by such sockets keeps the one
// that it has open, if another one comes with the same name.
func StaleReader(name string) (bool, error) {
	l, err := Get(name)
	if err != nil {
		return false, err
	}
	text, err := os.ReadFile("/proc/thread-self/net/packet")
	if err != nil {
		return false, fmt.Errorf("list packet sockets: %w", err)
	}
	return staleReader(string(text), l.Index), nil
}

// staleReader reads the kernel's list: "sk RefCnt Type Proto Iface R Rmem User Inode". A socket
// whose interface has gone has -1 in its place; 0003 is all protocols.
func staleReader(list string, index int) bool {
	stale := false
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) < 5 || f[3] != "0003" {
			continue
		}
		switch f[4] {
		case strconv.Itoa(index):
			return false
		case "-1":
			stale = true
		}
	}
	return stale
}
