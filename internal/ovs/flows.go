package ovs

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Flow is a flow as the switch has it: its identity and content as printed by
// ovs-ofctl, and its counters.
type Flow struct {
	Table          uint8
	Priority       uint16
	Cookie         uint64
	Match, Actions string
	Packets, Bytes uint64
}

// mgmt is the bridge's OpenFlow socket.
func (b *Bridge) mgmt() string { return filepath.Join(b.RunDir, b.Name+".mgmt") }

// DumpFlows returns all flows of the bridge with their counters.
func (b *Bridge) DumpFlows(ctx context.Context) ([]Flow, error) {
	out, err := b.ofctl(ctx, nil, "dump-flows", "unix:"+b.mgmt())
	if err != nil {
		return nil, fmt.Errorf("read flows of %s: %w", b.Name, err)
	}
	return parseFlows(out)
}

// ApplyBundle applies lines of `ovs-ofctl --bundle add-flows` ("add ...",
// "delete_strict ...") as one: all of them or, with an error, none.
func (b *Bridge) ApplyBundle(ctx context.Context, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	stdin := []byte(strings.Join(lines, "\n") + "\n")
	if _, err := b.ofctl(ctx, stdin, "--bundle", "add-flows", "unix:"+b.mgmt(), "-"); err != nil {
		return fmt.Errorf("change %d flows of %s: %w", len(lines), b.Name, err)
	}
	return nil
}

func parseFlows(out []byte) ([]Flow, error) {
	var flows []Flow
	for line := range bytes.Lines(out) {
		text := strings.TrimSpace(string(line))
		if text == "" || strings.HasPrefix(text, "OFPST_FLOW") || strings.HasPrefix(text, "NXST_FLOW") {
			continue
		}
		f, err := parseFlow(text)
		if err != nil {
			return nil, err
		}
		flows = append(flows, f)
	}
	return flows, nil
}

// parseFlow takes apart a line such as
//
//	cookie=0x1, duration=2.1s, table=0, n_packets=0, n_bytes=0, priority=9,ip actions=drop
//
// What stands before the match is separated by comma and space. An attribute not
// known here (a timeout, a flag: of somebody else's flow) stays in the match, which
// then equals none of ours.
func parseFlow(line string) (Flow, error) {
	head, actions, ok := strings.Cut(line, " actions=")
	if !ok {
		return Flow{}, fmt.Errorf("flow without actions: %q", line)
	}
	f := Flow{Priority: 32768, Actions: actions} // OpenFlow's default is not printed
	var match []string
	for part := range strings.SplitSeq(head, ", ") {
		rest, err := f.attribute(part)
		if err != nil {
			return Flow{}, fmt.Errorf("%w in flow %q", err, line)
		}
		if rest != "" {
			match = append(match, rest)
		}
	}
	f.Match = strings.Join(match, ", ")
	return f, nil
}

// attribute takes in one part before the actions and returns what of it belongs
// to the match.
func (f *Flow) attribute(part string) (rest string, err error) {
	key, value, _ := strings.Cut(part, "=")
	number := func(bits int) (n uint64) {
		value, rest, _ = strings.Cut(value, ",")
		n, err = strconv.ParseUint(value, 0, bits)
		return n
	}
	switch key {
	case "cookie":
		f.Cookie = number(64)
	case "table":
		f.Table = uint8(number(8))
	case "n_packets":
		f.Packets = number(64)
	case "n_bytes":
		f.Bytes = number(64)
	case "priority":
		f.Priority = uint16(number(16))
	case "duration", "idle_age", "hard_age":
	default:
		rest = part
	}
	return rest, err
}
