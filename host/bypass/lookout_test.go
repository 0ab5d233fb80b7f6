package bypass

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// watched is a namespace's Lookout that runs, and judges nothing against its traffic.
func watched(t *testing.T) (ns *linktest.NS, l *Lookout, traffic Traffic, withdrawn, deaf *atomic.Int32) {
	ns, traffic = host(t)
	traffic.Peers = nil
	withdrawn, deaf = new(atomic.Int32), new(atomic.Int32)
	l = NewLookout("none", Tell{Withdraw: func() { withdrawn.Add(1) }, Again: func() {}, Renew: func() bool { return true }}, func(error) { deaf.Add(1) })
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Add(1)
	go func() {
		defer ended.Done()
		ns.Do(func() { l.Run(ctx) })
	}()
	t.Cleanup(func() { cancel(); ended.Wait() })
	eventuallyJudged(t, ns, l, traffic, "")
	return ns, l, traffic, withdrawn, deaf
}

func eventuallyJudged(t *testing.T, ns *linktest.NS, l *Lookout, traffic Traffic, want string) {
	t.Helper()
	eventually(t, func() (err error) {
		ns.Do(func() { err = l.Judge(traffic) })
		if got := verdict(err); want == "" && got != "" || !strings.Contains(got, want) {
			return fmt.Errorf("judged %q, want %q", got, want)
		}
		return nil
	})
}

func eventually(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// A watch that has ended is opened again. Until then nothing passes the host by.
func TestLookoutAgain(t *testing.T) {
	ns, l, traffic, withdrawn, deaf := watched(t)
	before := withdrawn.Load()
	_ = l.now.Load().firewall.file.Close()
	eventually(t, func() error {
		if withdrawn.Load() == before || deaf.Load() == 0 {
			return errors.New("nothing is withdrawn, or nobody told")
		}
		return nil
	})
	eventuallyJudged(t, ns, l, traffic, "")
	before = withdrawn.Load()
	ns.Do(func() {
		run(t, "nft add table inet x; nft add chain inet x i '{ type filter hook input priority 0; policy drop; }'")
	})
	eventually(t, func() error {
		if withdrawn.Load() == before {
			return errors.New("the new watch hears nothing")
		}
		return nil
	})
}

// Of a filter in a block that several interfaces share the kernel tells by the block, not by an interface.
func TestHeardOfSharedBlock(t *testing.T) {
	ns, l, traffic, withdrawn, _ := watched(t)
	ns.Do(func() { run(t, "tc qdisc add dev eth0 ingress_block 7 clsact") })
	eventuallyJudged(t, ns, l, traffic, "")
	before := withdrawn.Load()
	ns.Do(func() {
		filter := &netlink.BpfFilter{
			FilterAttrs:  netlink.FilterAttrs{LinkIndex: -1, Parent: 7, Protocol: unix.ETH_P_ALL, Priority: 1}, // of the block 7
			Fd:           program(t, ebpf.SchedCLS, 2).FD(),                                                    // TC_ACT_SHOT
			Name:         "others",
			DirectAction: true,
		}
		if err := netlink.FilterAdd(filter); err != nil {
			t.Fatal(err)
		}
	})
	eventually(t, func() error {
		if withdrawn.Load() == before {
			return errors.New("nothing was heard of the filter")
		}
		return nil
	})
	eventuallyJudged(t, ns, l, traffic, "a tc filter")
}

// What arrives by a bridge may have a mark, and rules of routes ask for it.
func TestLookAtMarkedRoutes(t *testing.T) {
	ns, traffic := host(t)
	traffic.Peers = nil
	ns.Do(func() {
		run(t, "ip rule add fwmark 7 table 7 prio 100", "ip route add blackhole default table 7")
		if err := look(traffic, "none"); err != nil {
			t.Errorf("of what has no mark: %v", err)
		}
		run(t, "ip link set eth0 name wire", "ip link add eth0 type bridge", "ip link set wire master eth0", "ip link set eth0 up")
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		traffic.Index = l.Attrs().Index
		if got := verdict(look(traffic, "none")); !strings.Contains(got, "the rule 100 of routes (ip rule) asks for a mark") {
			t.Errorf("judged %q", got)
		}
	})
}
