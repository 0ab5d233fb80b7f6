package wireguard

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/device"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/netns"
)

// said are the words, as wireguard-go formats them, of packets that are refused.
var said = map[string]bool{
	"Received message with unknown type":          true,
	"Received packet with invalid mac1":           true,
	"Received invalid initiation message from %s": true, // of nobody who is a peer, or one that was heard before
	"Received invalid response message from %s":   true,
	"Could not decrypt invalid cookie response":   true,
}

// nothing are its words of a packet that it takes and that has nothing for the TUN device.
var nothing = map[string]bool{
	"%v - Receiving keepalive packet":   true,
	"Receiving cookie response from %s": true,
}

// question is what a process is asked for that, beside the words of WireGuard's interface.
const question = "refused=1"

// converse answers one who asks.
func converse(c net.Conn, d *device.Device, r *refusals) {
	in := bufio.NewReader(c)
	first, err := in.Peek(1) // WireGuard's words are get and set
	if err == nil && first[0] == question[0] {
		defer c.Close()
		_, _ = fmt.Fprintf(c, "refused=%d\nerrno=0\n\n", r.count())
		return
	}
	d.IpcHandle(peeked{c, in})
}

// peeked is a connection of which something was read already.
type peeked struct {
	net.Conn
	in io.Reader
}

func (p peeked) Read(b []byte) (int, error) { return p.in.Read(b) }

// Refused is how many packets each device has refused since it was begun: of nobody who is a peer, heard before, of a session that it does
// not have, or with an address that is not the sender's. A device that does not tell has none.
func Refused(run string) map[string]uint64 {
	all := map[string]uint64{}
	for name, file := range map[string]string{link.WireGuard: "wireguard", link.WireGuard2: "wireguard-second", link.Clients: "clients"} {
		lines, err := ask(filepath.Join(run, file+".sock"), question+"\n")
		if err != nil {
			continue
		}
		for _, line := range lines {
			if text, is := strings.CutPrefix(line, "refused="); is {
				all[name], _ = strconv.ParseUint(text, 10, 64)
			}
		}
	}
	byKernel := func(name string) { // it counts those with another's address alone
		if l, err := netlink.LinkByName(name); err == nil && l.Type() == "wireguard" && l.Attrs().Statistics != nil {
			all[name] = l.Attrs().Statistics.RxErrors
		}
	}
	byKernel(link.WireGuard)
	byKernel(link.WireGuard2)
	if _, told := all[link.Clients]; told {
		return all
	}
	if room, err := (Sandbox{Run: run}).Open(); err == nil {
		defer room.Close()
		_ = netns.Do(room.File, func() error { byKernel(link.Clients); return nil })
	}
	return all
}
