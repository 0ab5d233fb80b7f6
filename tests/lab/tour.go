package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Tour says how to look around in a kept lab.
func (l *Lab) Tour() string {
	var b strings.Builder
	for _, h := range l.Hosts {
		if m, ok := h.machine.(*nsMachine); ok {
			fmt.Fprintf(&b, "  %s   nsenter --target %d --all %s\n", h.Name, m.box.pid(), "bash")
		}
	}
	fmt.Fprintf(&b, "  outside nsenter --target %d --net bash      (%s)\n", l.Outside.box.pid(), OutsideAddr)
	fmt.Fprintf(&b, "  the wire  nsenter --target %d --net tcpdump -ni wire\n", l.Wire.box.pid())
	fmt.Fprintf(&b, "  logs    %s\n", filepath.Join(l.share(), "log"))
	return b.String()
}

// List describes the labs on this machine, a line each.
func List() []string {
	entries, err := os.ReadDir(base)
	if err != nil {
		return nil // no lab has been here
	}
	var lines []string
	for _, e := range entries {
		dir := filepath.Join(base, e.Name())
		lines = append(lines, fmt.Sprintf("%s %s, %d boxes", e.Name(), ownerState(dir), len(boxPIDs(dir))))
	}
	return lines
}
