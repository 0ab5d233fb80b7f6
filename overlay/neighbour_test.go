package overlay

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestNeighbours: a real kernel finds its neighbours by the switch's answers, keeps
// finding them while it looks again and again whether they are there, and loses no
// packet meanwhile. In both modes, whose answers differ.
func TestNeighbours(t *testing.T) {
	for name, mode := range map[string]pipeline.TunnelMode{"metadata": pipeline.Metadata, "header bits": pipeline.HeaderBits} {
		t.Run(name, func(t *testing.T) {
			b, _ := sceneSwitch(t, mode)
			run := func(args ...string) string { return ovstest.Run(t, args[0], args[1:]...) }
			run("ip", "netns", "add", "box")
			t.Cleanup(func() { run("ip", "netns", "del", "box") })
			run("ip", "link", "set", "gva", "netns", "box")
			in := func(args ...string) string { return run(append([]string{"ip", "netns", "exec", "box"}, args...)...) }
			in("ip", "link", "set", "gva", "address", "02:42:00:00:00:61")
			in("ip", "link", "set", "gva", "up")
			in("ip", "addr", "replace", "fd00:1::7/64", "dev", "gva", "nodad")
			run("ip", "link", "set", "gv0", "address", "02:42:00:00:00:02")
			run("ip", "link", "set", "gv0", "up")
			run("ip", "addr", "replace", "fd00:1::1/64", "dev", "gv0", "nodad")
			for _, key := range []string{"base_reachable_time_ms=100", "delay_first_probe_time=0", "retrans_time_ms=100", "ucast_solicit=600", "mcast_solicit=600"} {
				in("sysctl", "-qw", "net.ipv6.neigh.gva."+key)
				run("sysctl", "-qw", "net.ipv6.neigh.gv0."+key)
			}
			// ping itself waits for no longer than two round trips of before, which a busy machine exceeds.
			ping := func() {
				in("sh", "-c", "ping -6 -q -c 12 -i 0.02 -W 5 fd00:1::1 || true")
				var sent, answered uint64
				for end := time.Now().Add(30 * time.Second); sent == 0 || answered != sent; time.Sleep(10 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("of %d packets %d were answered", sent, answered)
					}
					counts := in("cat", "/proc/net/snmp6")
					sent, answered = counted(counts, "Icmp6OutEchos"), counted(counts, "Icmp6InEchoReplies")
				}
			}
			const rounds = 8
			for range rounds {
				ping()
				in("ip", "-6", "neigh", "replace", "fd00:1::1", "dev", "gva", "lladdr", pipeline.RouterMAC.String(), "nud", "probe") // asks at once
			}
			ping()
			if got := in("ip", "-6", "neigh"); !strings.Contains(got, "fd00:1::1 dev gva lladdr "+pipeline.RouterMAC.String()) {
				t.Errorf("the container's neighbours are\n%s", got)
			}
			// ovs-vswitchd takes the datapath's counters over from time to time.
			asked := uint64(0)
			for end := time.Now().Add(30 * time.Second); asked < rounds && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				flows, err := b.DumpFlows(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				asked = 0
				for _, f := range flows {
					if strings.Contains(f.Match, "nd_target=fd00:1::") && f.Actions != "drop" {
						asked += f.Packets
					}
				}
			}
			t.Logf("%d questions were answered", asked)
			if asked < rounds {
				t.Errorf("only %d questions were answered: nothing is shown", asked)
			}
		})
	}
}

// counted is one of the kernel's counters.
func counted(all, name string) uint64 {
	_, rest, _ := strings.Cut(all, name+" ")
	digits, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	n, _ := strconv.ParseUint(digits, 10, 64)
	return n
}
