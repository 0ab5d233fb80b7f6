package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// removals are what keeps encrypted networks from the clear on a host, or what they leave by, and who takes each away. Each
// keeper is one of a way to the host's default route; what is none is a cause to take that.
var removals = []struct {
	name, keeps, do string
}{
	{"gvwg", "", "ip link del gvwg"},
	{"gv0", "", "ip link del gv0"},
	{"the tunnel", "", "ip link del gvvxlan || ip link del vxlan_sys_4789"},
	{"ovs-vswitchd", "", "kill -9 $(cat /run/grapevine/ovs/ovs-vswitchd.pid)"},
	{"WireGuard's process", "", "kill -9 $(pgrep -xo grapevine-wg)"},
	{"the rules", keptInside + " " + keptContainers, "nft delete table inet grapevine; nft delete table inet grapevine-boot"},
	{"the route", keptInside, "ip -6 route del unreachable fd67:7261:7065:1::/64"},
	{"rule 2", keptInside, "ip -6 rule del priority 2"},
	{"rule 1", "", "ip -6 rule del priority 1"}, // what is left without it is rule 2
	{"rule 32000", keptContainers, "ip rule del priority 32000; ip -6 rule del priority 32000"},
	{"table 26486", "", "ip route flush table 26486; ip -6 route flush table 26486"},
	{"rule 32001", keptContainers, "ip rule del priority 32001; ip -6 rule del priority 32001"},
	{"table 26487", "", "ip route flush table 26487; ip -6 route flush table 26487"},
}

// Each way has three keepers: the rules and two of routing. With a rule of routing goes its table, and the other way round.
const keptInside, keptContainers = "inside", "containers"

var sameKeeper = map[string]string{"rule 32000": "32000", "table 26486": "32000", "rule 32001": "32001", "table 26487": "32001"}

// lastOf reports whether nothing would keep one of the ways shut any more with this one gone, too.
func lastOf(gone map[string]bool, next string) bool {
	gone[next] = true
	defer delete(gone, next)
	inside := gone["the rules"] && gone["the route"] && gone["rule 2"]
	by := map[string]bool{}
	for name := range gone {
		if k := sameKeeper[name]; k != "" {
			by[k] = true
		}
	}
	return inside || gone["the rules"] && len(by) == 2
}

// removed ROUNDS HOST... [SEED]: in each round an agent dies, or not, and a draw of what keeps encrypted networks from the clear there is taken
// away, one after the other in a drawn order, as long as one keeper of each way is left. Then an agent begins. The seed is printed.
func removed(ctx context.Context, s *state, args []string) (said string, err error) {
	if len(args) < 2 {
		return "", usageError("usage: removed ROUNDS HOST... [SEED]")
	}
	rounds, err := strconv.Atoi(args[0])
	if err != nil {
		return "", usageError(err.Error())
	}
	args = args[1:]
	seed := uint64(time.Now().UnixNano())
	if given, err := strconv.ParseUint(args[len(args)-1], 10, 64); err == nil {
		seed, args = given, args[:len(args)-1]
	}
	hosts, err := s.hostsOf(args)
	if err != nil {
		return "", err
	}
	said = fmt.Sprintf("seed %d\n", seed)
	rnd := rand.New(rand.NewPCG(seed, 30)) //nolint:gosec // a test's draw
	for range rounds {
		did, err := s.removeSome(ctx, rnd, hosts[rnd.IntN(len(hosts))])
		said += did
		if err != nil {
			return said, fmt.Errorf("%w; what was done:\n%s", err, said)
		}
	}
	return said, nil
}

func (s *state) removeSome(ctx context.Context, rnd *rand.Rand, h *lab.Host) (said string, err error) {
	killed, gone, did := rnd.IntN(4) > 0, map[string]bool{}, []string{}
	at := max(0, rnd.IntN(5)-2) // when the agent dies
	if !killed {
		at = -1
	}
	want := len(removals) // in half of the rounds all but the last keepers
	if rnd.IntN(2) == 0 {
		want = 2 + rnd.IntN(len(removals)-2)
	}
	for i, r := range rnd.Perm(len(removals)) {
		if i == at {
			if err := h.KillAgent(ctx); err != nil {
				return "", err
			}
			did = append(did, "the agent")
		}
		one := removals[r]
		if len(gone) == want || lastOf(gone, one.name) {
			continue
		}
		_, _ = h.Exec(ctx, "sh", "-c", one.do) // some are not there: by the datapath, or since another one took them along
		gone[one.name], did = true, append(did, one.name)
		pause(ctx, time.Duration(rnd.IntN(150))*time.Millisecond)
	}
	if killed && rnd.IntN(4) == 0 {
		out, err := h.Exec(ctx, "grapevine", "boot-guard")
		if err != nil {
			return "", errors.Join(err, errors.New(out))
		}
		did = append(did, "(boot-guard)")
	}
	pause(ctx, time.Duration(100+rnd.IntN(400))*time.Millisecond)
	said = h.Name + ": " + strings.Join(did, ", ") + "\n"
	if killed {
		if err := h.StartAgent(ctx); err != nil {
			return said, err
		}
	}
	return said, s.joined(ctx, time.Minute)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
