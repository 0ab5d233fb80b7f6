// Command measure is what measure.sh makes its tunnels with:
//
//	measure [-port N] [-mtu N] [-tso] [INDEX=VTEP ...]   make gvtun, set the VTEPs, print the counters
//	measure [-tso] -userspace IF                         prepare a container's interface
//	measure -buffers PID                                 give ovs-vswitchd's sockets room
package main

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/tunnel"
)

func main() {
	port := flag.Uint("port", uint(encap.VXLAN.Port), "UDP port")
	mtu := flag.Int("mtu", 1500, "bytes")
	tso := flag.Bool("tso", false, "the switch does TSO")
	userspace := flag.String("userspace", "", "prepare this interface")
	buffers := flag.Int("buffers", 0, "process to give room")
	flag.Parse()
	var err error
	switch {
	case *userspace != "":
		err = link.ForUserspace(*userspace, *tso)
	case *buffers != 0:
		err = link.GrowBuffers(*buffers)
	default:
		err = ensure(tunnel.Config{UDPPort: uint16(*port), MTU: *mtu, TSO: *tso}, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func ensure(cfg tunnel.Config, args []string) error {
	vteps := make(map[uint32]netip.Addr)
	for _, a := range args {
		index, addr, _ := strings.Cut(a, "=")
		i, err := strconv.ParseUint(index, 0, 32)
		if err != nil {
			return fmt.Errorf("VTEP %q: %w", a, err)
		}
		if vteps[uint32(i)], err = netip.ParseAddr(addr); err != nil {
			return fmt.Errorf("VTEP %q: %w", a, err)
		}
	}
	ctx := context.Background()
	t := tunnel.New(cfg)
	if _, err := t.Ensure(ctx); err != nil {
		return err
	}
	if err := t.SetVTEPs(ctx, vteps); err != nil {
		return err
	}
	c, err := t.Counters(ctx)
	fmt.Printf("%+v\n", c)
	return err
}
