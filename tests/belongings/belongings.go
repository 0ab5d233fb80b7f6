// Package belongings reads what a Docker host has of grapevine's: what comes and goes must
// leave nothing behind, and package verdict says what it did.
package belongings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/tests/chaos/verdict"
	"github.com/grapevine-net/grapevine/tests/lab"
)

// inventory lists what a host has of grapevine's, and all devices, rules and routes.
// Counters, and names that are made anew at each start, are left out, and so is the note of who has
// turned forwarding on: of agent and Docker, the one that was first after a boot.
const inventory = `
echo '# links'; ip -o link show | sed 's/^[0-9]*: \([^:@]*\).*/\1/'
echo '# filters'; for l in $(ls /sys/class/net); do tc qdisc show dev $l; for at in ingress egress; do tc filter show dev $l $at 2>/dev/null; done | sed "s/^/$l /"; done | grep -v -e ' noqueue ' -e ' noop ' | sed 's/ id [0-9]* name/ name/; s/ tag .*//'
echo '# rules'; for t in iptables-save ip6tables-save; do $t | grep -v '^[:#*C]' | grep -i -e gv -e grapevine || true; done
echo '# policies'; ip rule; ip -6 rule
echo '# routes'; ip route show table all; ip -6 route show table all | sed 's/ expires [0-9]*sec//'
echo '# tables'; nft -s list tables; for t in $(nft list tables | grep -i -e grapevine -e gv | sed 's/^table //; s/ /:/'); do nft -s list table ${t%:*} ${t#*:}; done
echo '# files'; find /run/grapevine /var/lib/grapevine ! -name '*.tmp' ! -path /run/grapevine/forwarding | sed 's/[.][0-9]*[.]ctl$/.PID.ctl/' | sort
echo '# ports'; ovs-vsctl --db=unix:/run/grapevine/ovs/db.sock --timeout=5 list-ports gvbr0
echo '# numbers'; ovs-vsctl --db=unix:/run/grapevine/ovs/db.sock --timeout=5 -f table -d bare --no-headings --columns=ofport,name list Interface
echo '# groups'; ovs-ofctl -O OpenFlow14 dump-groups unix:/run/grapevine/ovs/gvbr0.mgmt | grep group_id || true
echo '# networks'; docker network ls --filter driver=grapevine --format '{{.Name}}'
echo '# descriptors'; ls /proc/$(pgrep -x grapevine | head -1)/fd | wc -l
echo '# processes'; pgrep -c 'grapevine|ovs'
echo "# agent's MB"; awk '/^VmRSS/ {print int($2/1024)}' /proc/$(pgrep -x grapevine | head -1)/status
for d in ovs-vswitchd ovsdb-server; do echo "# $d's MB"; awk '/^VmRSS/ {print int($2/1024)}' /proc/$(cat /run/grapevine/ovs/$d.pid)/status; done
`

// Of reads what a host has. It fails if no agent runs there.
func Of(ctx context.Context, h *lab.Host) (verdict.Belongings, error) {
	b := verdict.Belongings{Lines: map[string][]string{}, Amounts: map[string]int{}}
	text, err := h.Exec(ctx, "sh", "-ec", inventory)
	if err != nil {
		return b, err
	}
	kind := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if next, heading := strings.CutPrefix(line, "# "); heading {
			kind = next
			continue
		}
		if n, err := strconv.Atoi(line); err == nil {
			b.Amounts[kind] = n
			continue
		}
		b.Lines[kind] = append(b.Lines[kind], line)
	}
	if b.Amounts["descriptors"] == 0 || b.Amounts["processes"] == 0 || len(b.Lines["links"]) == 0 {
		return b, fmt.Errorf("%s: no agent is found in the inventory:\n%s", h.Name, text)
	}
	if text, err = h.Exec(ctx, "sh", "-ec", "grapevine status -o json; grapevine flows -o json"); err != nil {
		return b, err
	}
	var status api.Status
	var flows []api.Flow
	all := json.NewDecoder(strings.NewReader(text))
	if err := errors.Join(all.Decode(&status), all.Decode(&flows)); err != nil {
		return b, err
	}
	ports := map[string]string{}
	for _, line := range b.Lines["numbers"] {
		if w := strings.Fields(line); len(w) == 2 {
			ports[w[0]] = w[1]
		}
	}
	delete(b.Lines, "numbers")
	for _, f := range flows {
		// What rules of nftables have dropped is counted on when they are gone.
		if f.Table == noTable {
			continue
		}
		b.Lines["flows"] = append(b.Lines["flows"], withPorts(fmt.Sprint(f.Table, " ", f.Priority, " ", f.Match, " ", f.Actions), ports))
	}
	b.Amounts["goroutines"] = status.Process.Goroutines
	b.Amounts["heap MB"] = int(status.Process.Heap >> 20)
	b.Amounts["leases"] = status.Leases
	return b, nil
}

// noTable is the number of what is listed with the flows and is none of the switch's.
const noTable = 255

// portNumber matches where a flow has the OpenFlow number of a port.
var portNumber = regexp.MustCompile(`(\bin_port=|\boutput:|\breg2=|\bset_field:)(0x[0-9a-f]+|\d+)(->reg2)?`)

// withPorts is a flow with ports' names in place of their numbers, which another start of the
// switch may give to others.
func withPorts(flow string, names map[string]string) string {
	return portNumber.ReplaceAllStringFunc(flow, func(found string) string {
		m := portNumber.FindStringSubmatch(found)
		n, err := strconv.ParseUint(m[2], 0, 32)
		if name, known := names[strconv.FormatUint(n, 10)]; known && err == nil && (m[1] != "set_field:" || m[3] != "") {
			return m[1] + name + m[3]
		}
		return found
	})
}
