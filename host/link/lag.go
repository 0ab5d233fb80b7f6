package link

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Lag is what becomes of packets on their way: each waits for Delay, more or less by as much as Jitter, and Loss of them, between
// 0 and 1, are lost. The zero value is none.
type Lag struct {
	Delay, Jitter time.Duration
	Loss          float64
}

const lagMajor = 0x6777

// lagPackets is for how many packets there is room while they wait: a gigabit a second of large ones for a tenth of a second.
const lagPackets = 10_000

// ErrNoLag is that the kernel has nothing by which packets can be delayed or lost.
var ErrNoLag = errors.New("this host's kernel has no netem, by which packets are delayed and lost: " +
	"install the kernel's modules that have sch_netem (Debian: linux-image-$(uname -r)) and say `modprobe sch_netem`, or leave delay, jitter and loss out")

// CanLag returns ErrNoLag if this host's kernel cannot delay or lose packets. It changes nothing: netem refuses to be made without options,
// and what the kernel does not know it refuses for that.
func CanLag() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("ask the kernel for netem: %w", mapErr(err))
	}
	r := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK)
	r.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(lo.Attrs().Index), Handle: lagHandle, Parent: netlink.HANDLE_ROOT})
	r.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("netem")))
	switch _, err := r.Execute(unix.NETLINK_ROUTE, 0); {
	case errors.Is(err, unix.ENOENT):
		return ErrNoLag
	case errors.Is(err, unix.EINVAL):
		return nil
	default:
		return fmt.Errorf("ask the kernel for netem: %w", err)
	}
}

// qdisc is tc-netem(8) of that lag.
func (g Lag) qdisc(l netlink.Link) *netlink.Netem {
	ticks := func(d time.Duration) uint32 { return uint32(min(uint64(max(d, 0))>>6, math.MaxUint32)) } // of 64 ns
	return &netlink.Netem{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: lagHandle, Parent: netlink.HANDLE_ROOT},
		Latency:    ticks(g.Delay), Jitter: ticks(g.Jitter), Loss: uint32(math.Round(max(0, min(g.Loss, 1)) * math.MaxUint32)), Limit: lagPackets,
	}
}

// sameLag reports whether a netem is as another one is to be.
func sameLag(had, want *netlink.Netem) bool {
	a, b := *had, *want
	a.QdiscAttrs, b.QdiscAttrs = netlink.QdiscAttrs{}, netlink.QdiscAttrs{}
	return a == b
}
