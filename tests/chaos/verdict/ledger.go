package verdict

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/ipam"
)

// Entry is a line of a host's log about the addresses and VNIDs that it holds.
type Entry struct {
	Host        string
	At          time.Time
	All         bool // Held is all that it holds; else what it holds as well
	Held, Freed []string
}

// entry matches such a line.
var entry = regexp.MustCompile(`^time=(\S+) level=DEBUG msg="(` + ipam.LeasesRead + `|` + ipam.LeasesSaved + `)" (?:room=\S+ )?held="?([^"]*?)"?(?: freed="?([^"]*?)"?)?$`)

// Entries are those of a host's log.
func Entries(host, log string) (list []Entry, err error) {
	for line := range strings.Lines(log) {
		m := entry.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		e := Entry{Host: host, All: m[2] == ipam.LeasesRead, Held: keys(m[3]), Freed: keys(m[4])}
		if e.At, err = time.Parse(time.RFC3339Nano, m[1]); err != nil {
			return nil, fmt.Errorf("the log of %s says %q: %w", host, line, err)
		}
		list = append(list, e)
	}
	return list, nil
}

func keys(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// Ledger says which addresses and VNIDs were held by two hosts at the same time, ever. All
// hosts' clocks have to be the same one, and tell milliseconds.
func Ledger(list []Entry) (wrong []string) {
	slices.SortStableFunc(list, func(a, b Entry) int {
		// Within a millisecond what was freed may have been given to another host.
		return cmp.Or(a.At.Truncate(time.Millisecond).Compare(b.At.Truncate(time.Millisecond)), len(a.Held)-len(b.Held))
	})
	owner := map[string]string{}
	for _, e := range list {
		for key, host := range owner {
			// A host that was killed may not have come to say that it freed something.
			if host == e.Host && (e.All || slices.Contains(e.Freed, key)) {
				delete(owner, key)
			}
		}
		for _, key := range e.Held {
			if other, taken := owner[key]; taken && other != e.Host {
				wrong = append(wrong, fmt.Sprintf("%s: %s got %s, which %s held", clock(e.At), e.Host, key, other))
			}
			owner[key] = e.Host
		}
	}
	return wrong
}
