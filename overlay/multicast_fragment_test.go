package overlay

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestPolicyFragmentsToGroups: of a datagram that rules do not let its sender send to a group, members get no fragment, neither
// the first one nor those that follow it, which have no port that rules could look at.
func TestPolicyFragmentsToGroups(t *testing.T) {
	r := newRuled(t)
	group := addr("239.1.2.3")
	for i := range r.in.Ports {
		r.in.Ports[i].Multicast = true
	}
	r.in.Groups = []pipeline.Group{{VNID: 5, Addr: group, Ports: []uint32{r.in.Ports[1].OFPort}}}
	r.enforce(pipeline.Policy{})
	out, seen := packetSocket(t, "a"), packetSocket(t, "b")
	send := func(frames ...[]byte) {
		t.Helper()
		for _, f := range frames {
			if _, err := unix.Write(out, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	// marked waits for a whole datagram to arrive, and counts the fragments that came before it.
	marked := func(mark []byte) (fragments int) {
		t.Helper()
		ovstest.Eventually(t, time.Minute, func() error { return arrives(seen, mark, &fragments) })
		return fragments
	}

	// Without rules both arrive, so that the test sees what there is to see.
	first, later := firstFragment(addr("10.128.0.7"), group, 1, 81), laterFragment(addr("10.128.0.7"), group, 1)
	send(first, later, wholeDatagram(addr("10.128.0.7"), group, 80, "without rules"))
	if n := marked([]byte("without rules")); n != 2 {
		t.Fatalf("without rules %d of 2 fragments arrive", n)
	}

	rules := r.policy("a", 1, pipeline.PolicyRule{
		Direction: pipeline.Egress, Subjects: []uint32{1}, Blocks: []netip.Prefix{prefix("239.0.0.0/8")}, Ports: []pipeline.PortRange{{Proto: unix.IPPROTO_UDP, From: 80, To: 80}},
	})
	rules.Guards[0].Ingress = false
	r.enforce(rules)
	for id := range uint32(20) {
		send(firstFragment(addr("10.128.0.7"), group, 100+id, 81), laterFragment(addr("10.128.0.7"), group, 100+id))
	}
	send(wholeDatagram(addr("10.128.0.7"), group, 80, "with rules"))
	if n := marked([]byte("with rules")); n != 0 {
		t.Errorf("%d fragments for a port that no rule lets through arrive", n)
	}
}

// arrives reads the frames that a socket has, up to one with the mark, and adds the fragments among them.
func arrives(fd int, mark []byte, fragments *int) error {
	frame := make([]byte, 4096)
	for {
		size, err := unix.Read(fd, frame)
		if err != nil {
			return err
		}
		if size > 34 && binary.BigEndian.Uint16(frame[12:]) == unix.ETH_P_IP && binary.BigEndian.Uint16(frame[20:])&0x3fff != 0 {
			*fragments++
		}
		if bytes.Contains(frame[:size], mark) {
			return nil
		}
	}
}

// laterFragment is the frame of the rest of a datagram of IPv4 that firstFragment begins.
func laterFragment(src, dst netip.Addr, id uint32) []byte {
	frame := firstFragment(src, dst, id, 0)
	const size = 1400 // of what the first one has, and of this
	binary.BigEndian.PutUint16(frame[20:], size/8)
	clear(frame[34:42])
	return summed(frame)
}

// wholeDatagram is the frame of a whole one.
func wholeDatagram(src, dst netip.Addr, port uint16, text string) []byte {
	frame := firstFragment(src, dst, 0, port)[:42]
	binary.BigEndian.PutUint16(frame[16:], uint16(28+len(text)))
	binary.BigEndian.PutUint16(frame[20:], 0)
	binary.BigEndian.PutUint16(frame[38:], uint16(8+len(text)))
	return append(summed(frame), text...)
}

// summed gives a frame of IPv4 the checksum of its header.
func summed(frame []byte) []byte {
	clear(frame[24:26])
	binary.BigEndian.PutUint16(frame[24:], checksum(frame[14:34]))
	return frame
}
