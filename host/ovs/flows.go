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
	// Attributes are timeouts and flags, such as "idle_timeout=60 send_flow_rem".
	// ApplyBundle's flows have none.
	Attributes     string
	Packets, Bytes uint64
}

// mgmt is the bridge's OpenFlow socket.
func (b *Bridge) mgmt() string { return filepath.Join(b.RunDir, b.Name+".mgmt") }

// DumpFlows returns the flows of the bridge, all or those of a match of ovs-ofctl's, with
// their counters.
func (b *Bridge) DumpFlows(ctx context.Context, match ...string) ([]Flow, error) {
	limit := flowsTimeout
	if len(match) > 0 {
		limit = commandTimeout
	}
	out, err := b.ofctl(ctx, limit, nil, append([]string{"dump-flows", "unix:" + b.mgmt()}, match...)...)
	if err != nil {
		return nil, fmt.Errorf("read flows of %s: %w", b.Name, err)
	}
	return parseFlows(out)
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
//	cookie=0x1, duration=2.1s, table=0, n_packets=0, n_bytes=0, idle_timeout=5, reset_counts priority=9,ip actions=drop
//
// What stands before the match is separated by a comma and a space, flags by a space.
func parseFlow(line string) (Flow, error) {
	head, actions, ok := strings.Cut(line, " actions=")
	if !ok {
		return Flow{}, fmt.Errorf("flow without actions: %q", line)
	}
	f := Flow{Priority: 32768, Actions: actions} // OpenFlow's default is not printed
	var attributes []string
	for part := range strings.FieldsFuncSeq(head, func(r rune) bool { return r == ' ' }) {
		attribute, err := f.part(strings.TrimSuffix(part, ","))
		if err != nil {
			return Flow{}, fmt.Errorf("%w in flow %q", err, line)
		}
		if attribute != "" {
			attributes = append(attributes, attribute)
		}
	}
	f.Attributes = strings.Join(attributes, " ")
	return f, nil
}

// part takes in one part before the actions; what is neither identity, content nor
// counter is an attribute.
func (f *Flow) part(text string) (attribute string, err error) {
	key, value, _ := strings.Cut(text, "=")
	number := func(bits int) (n uint64) {
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
		value, f.Match, _ = strings.Cut(value, ",")
		f.Priority = uint16(number(16))
	case "duration", "idle_age", "hard_age":
	case "idle_timeout", "hard_timeout", "importance", "send_flow_rem", "check_overlap",
		"reset_counts", "no_packet_counts", "no_byte_counts":
		return text, nil
	default:
		f.Match = text
	}
	return "", err
}
