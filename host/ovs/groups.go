package ovs

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Group is a group as the switch has it: its type and buckets as ovs-ofctl prints them.
type Group struct {
	ID   uint32
	Text string
}

// DumpGroups returns the groups of the bridge.
func (b *Bridge) DumpGroups(ctx context.Context) (groups []Group, err error) {
	out, err := b.ofctl(ctx, commandTimeout, nil, "dump-groups", "unix:"+b.mgmt())
	if err != nil {
		return nil, fmt.Errorf("read groups of %s: %w", b.Name, err)
	}
	for line := range bytes.Lines(out) {
		id, text, ok := strings.Cut(strings.TrimSpace(string(line)), ",")
		number, is := strings.CutPrefix(id, "group_id=")
		if !ok || !is { // the head of the answer
			continue
		}
		n, err := strconv.ParseUint(number, 0, 32)
		if err != nil {
			return nil, fmt.Errorf("read groups of %s: %q: %w", b.Name, line, err)
		}
		groups = append(groups, Group{uint32(n), text})
	}
	return groups, nil
}
