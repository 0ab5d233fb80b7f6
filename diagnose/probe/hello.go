package probe

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/diagnose/paths"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// A hello is a frame through the tunnel that nobody asks for and nobody answers. Hosts whose agent does not know
// seals (seal.go) say and hear it without one:
//
//	"gvhello1" | sender's ID 8 | milliseconds to the next 4 | hears 1 | large, inside 1 | zeros
//
// An agent that does not know it does not take it: it is no probe.
const (
	helloMagic = "gvhello1"
	helloSize  = len(helloMagic) + 8 + 4 + 1 + 1
)

// What the last byte says. An agent that does not know what is inside does not take a hello that is, and is said none.
const isLarge, isInside = 1, 2

func encodeHello(h paths.Hello, length int) ([]byte, error) {
	id, err := hex.DecodeString(h.From)
	if err != nil || len(id) != 8 {
		return nil, fmt.Errorf("say hello as %q: that is no host's ID", h.From)
	}
	b := append(append(make([]byte, 0, max(length, helloSize)), helloMagic...), id...)
	b = binary.BigEndian.AppendUint32(b, uint32(h.Every.Milliseconds()))
	b = append(b, byte(h.Hears), 0)
	if h.Large {
		b[len(b)-1] |= isLarge
	}
	if h.Inside {
		b[len(b)-1] |= isInside
	}
	return b[:cap(b)], nil
}

func decodeHello(b []byte) (h paths.Hello, ok bool) {
	if len(b) < helloSize || string(b[:len(helloMagic)]) != helloMagic {
		return h, false
	}
	return decodeHelloBody(b)
}

// decodeHelloBody reads what follows the first eight bytes, be it sealed or not.
func decodeHelloBody(b []byte) (h paths.Hello, ok bool) {
	b = b[len(helloMagic):]
	h.From = hex.EncodeToString(b[:8])
	h.Every = time.Duration(binary.BigEndian.Uint32(b[8:])) * time.Millisecond
	h.Hears, h.Large, h.Inside = paths.Heard(b[12]), b[13]&isLarge != 0, b[13]&isInside != 0
	return h, h.Hears <= paths.Small && b[13] <= isLarge|isInside
}

// smallHello is the size of the frame that says hello beside the large one: what a sealed hello has, and its count.
const smallHello = sealedSize + countSize

// Hellos sends and hears hellos on the gateway port. Its methods are called by one goroutine.
type Hellos struct {
	device string

	seals  seals
	frames *waiting
	index  int
	mtu    int
	said   map[string]uint32 // small ones, by host
}

// NewHellos returns Hellos on a device, which need not be there.
func NewHellos(device string) *Hellos {
	return &Hellos{device: device, said: map[string]uint32{}}
}

// Ready reports whether hellos can be sent and heard, and opens what is needed; anew: not until
// now. The error says why they cannot.
func (h *Hellos) Ready() (anew bool, err error) {
	dev, err := link.Glance(h.device)
	if err != nil || !dev.Up {
		h.Close()
		return false, errors.Join(err, fmt.Errorf("%s is not up", h.device))
	}
	h.mtu = dev.MTU
	if h.frames != nil && h.index == dev.Index {
		return false, nil
	}
	h.Close()
	f, err := wait(h.device)
	if err != nil {
		return false, err
	}
	h.frames, h.index = f, dev.Index
	return true, nil
}

// Hear hands on what has come since it was called last, and when that came.
func (h *Hellos) Hear(take func(paths.Hello, time.Time)) {
	if h.frames == nil {
		return
	}
	h.frames.all(func(b []byte, came time.Time) {
		if hello, ok := h.seals.read(b); ok {
			take(hello, came)
		}
	})
}

// Know tells who says hello, and by what that is sealed. Until then nobody is heard.
func (h *Hellos) Know(r Ring) {
	h.seals.know(r)
	for to := range h.said {
		if _, known := r.Peers[to]; !known {
			delete(h.said, to)
		}
	}
}

// Close ends hearing. Ready begins anew.
func (h *Hellos) Close() {
	h.frames.close()
	h.frames = nil
}

// Say says hello to a host, at that VTEP, in a small frame and in one as large as a container's
// may be; inside what encrypts in one that stands for both: how much the underlay carries is known by the others. What cannot be sent just now is as if lost.
func (h *Hellos) Say(to string, vtep netip.Addr, hello paths.Hello) error {
	if h.frames == nil {
		return errors.New("nobody can be said hello yet")
	}
	mac := pipeline.ProbeMAC(vtep.Unmap().WithZone(""))
	sizes := []int{smallHello, h.mtu}
	if hello.Inside {
		sizes = sizes[:1]
	}
	for _, size := range sizes {
		hello.Large, hello.Count = hello.Inside || size != smallHello, 0
		if !hello.Large {
			h.said[to]++
			hello.Count = h.said[to]
		}
		b, err := h.seals.write(to, hello, size)
		if err != nil {
			return err
		}
		if err := h.frames.send(mac, b); err != nil && !errors.Is(err, unix.EMSGSIZE) && !errors.Is(err, unix.ENETDOWN) && !errors.Is(err, unix.ENXIO) {
			return fmt.Errorf("say hello: %w", err)
		}
	}
	return nil
}
