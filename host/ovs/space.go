package ovs

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Space is how many connections a zone of connection tracking has, and how many it takes; 0: any number.
type Space struct{ Has, Limit int }

// Connections asks how many connections the bridge's datapath has in a zone.
func (b *Bridge) Connections(ctx context.Context, zone uint16) (Space, error) {
	out, err := b.Appctl(ctx, "dpctl/ct-get-limits", fmt.Sprintf("zone=%d", zone))
	if err != nil {
		return Space{}, fmt.Errorf("ask how many connections the datapath of %s has: %w", b.Name, err)
	}
	room, err := parseSpace(out, zone)
	if err != nil {
		return Space{}, fmt.Errorf("ask how many connections the datapath of %s has: %w: %q", b.Name, err, out)
	}
	return room, nil
}

// parseSpace reads "zone=26486,limit=100,count=3". A zone that has no limit of its own has the default one.
func parseSpace(out []byte, zone uint16) (r Space, err error) {
	for line := range strings.FieldsFuncSeq(string(out), func(r rune) bool { return r == '\n' }) {
		rest, of := strings.CutPrefix(strings.TrimSpace(line), fmt.Sprintf("zone=%d,limit=", zone))
		if !of {
			continue
		}
		limit, count, _ := strings.Cut(rest, ",count=")
		if r.Limit, err = strconv.Atoi(limit); err == nil {
			r.Has, err = strconv.Atoi(count)
		}
		return r, err
	}
	return r, fmt.Errorf("nothing is said of zone %d", zone)
}

// LimitConnections bounds how many connections a zone has. Of one that has more none is forgotten. The userspace datapath counts
// those alone that begin in a zone with a bound.
func (b *Bridge) LimitConnections(ctx context.Context, zone uint16, limit int) error {
	if _, err := b.Appctl(ctx, "dpctl/ct-set-limits", fmt.Sprintf("zone=%d,limit=%d", zone, limit)); err != nil {
		return fmt.Errorf("bound how many connections the datapath of %s tracks: %w", b.Name, err)
	}
	return nil
}

// Callers counts the connections of a zone by the address from which they began. It takes ovs-vswitchd a microsecond or two for each
// connection, in which it does nothing else.
func (b *Bridge) Callers(ctx context.Context, zone uint16) (map[netip.Addr]int, error) {
	out, err := b.Appctl(ctx, "dpctl/dump-conntrack", fmt.Sprintf("zone=%d", zone))
	if err != nil {
		return nil, fmt.Errorf("ask which connections the datapath of %s has: %w", b.Name, err)
	}
	return parseCallers(out), nil
}

// parseCallers reads lines as "udp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=1,dport=2),reply=(...),zone=26486".
func parseCallers(out []byte) map[netip.Addr]int {
	callers := map[netip.Addr]int{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		_, rest, _ := bytes.Cut(lines.Bytes(), []byte("orig=(src="))
		text, _, _ := bytes.Cut(rest, []byte(","))
		if a, err := netip.ParseAddr(string(text)); err == nil {
			callers[a]++
		}
	}
	return callers
}
