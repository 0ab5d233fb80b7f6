package counter

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link"
)

// Half is one direction of a connection.
type Half struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16 // of ICMP's echoes both are the identifier; of other ICMP, and of later fragments, 0
	Proto            uint8
}

// Back is the other direction.
func (h Half) Back() Half { return Half{h.Dst, h.Src, h.DstPort, h.SrcPort, h.Proto} }

// Key is a Half as it came by one interface. What is in a packet its sender wrote, so a Half alone does not say who sent it.
type Key struct {
	Half
	Index uint32 // of the interface
}

// Count is what was counted of a Key.
type Count struct {
	Packets, Bytes uint64
	First, Last    time.Time
	// Flags are all that TCP's had, Opened those of the first packet. Of ICMP 1 is an echo request.
	Flags, Opened uint8
	// Port is the switch's port by which it came, or the gateway's interface; "": it is not known any more.
	Port string `cbor:"-"`
}

// Lost is what there was no room for.
type Lost struct{ Packets, Bytes uint64 }

// Room is how many halves are counted at once.
const Room = 16384

// wireHalf, wireCount are the map's key and value.
type wireHalf struct {
	Src, Dst         [16]byte
	SrcPort, DstPort [2]byte
	Proto            uint8
	_                [3]byte
	Ifindex          uint32
}

type wireCount struct {
	Packets, Bytes, First, Last uint64
	Flags, Opened               uint8
	_                           [6]byte
}

type wireLost struct{ Packets, Bytes uint64 }

// Counter is this host's. Its methods may be called concurrently.
type Counter struct {
	gateway string

	mu    sync.Mutex
	objs  *bpfObjects       // nil: off
	most  int               // as many were counted last
	ports map[uint32]string // of interfaces by their index, also of such that have gone
}

// New returns a Counter that is off, for containers' veths and the gateway's interface.
func New(gateway string) *Counter { return &Counter{gateway: gateway} }

// place is where the program stands.
type place struct {
	name  string
	index uint32
	port  string // of the switch, or the gateway's interface
	hook  link.Hook
	turn  link.Turn
}

// places are those that there are now.
func (c *Counter) places() ([]place, error) {
	all, err := link.List("")
	if err != nil {
		return nil, err
	}
	indexes := map[string]uint32{}
	for _, l := range all {
		indexes[l.Name] = uint32(l.Index)
	}
	var list []place
	for name, index := range indexes {
		port := link.PortOf(name)
		_, outer := indexes[link.Beside(link.OuterPrefix, port)]
		switch {
		case name == c.gateway:
			list = append(list, place{name, index, name, link.Egress, link.Last})
		case port == "":
		case strings.HasPrefix(name, link.OuterPrefix), name == port && !outer:
			list = append(list, place{name, index, port, link.Ingress, link.First})
		}
	}
	return list, nil
}

// Start begins to count, or goes on where a former agent did.
func (c *Counter) Start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objs != nil {
		return nil
	}
	link.RaiseMemlock()
	spec, err := loadBpf()
	if err != nil {
		return fmt.Errorf("read the counting program: %w", err)
	}
	places, err := c.places()
	if err != nil {
		return err
	}
	old := map[string]*ebpf.Map{}
	defer func() {
		for _, m := range old {
			_ = m.Close()
		}
	}()
	for _, p := range places {
		id, _, err := link.Front(p.name, p.hook, p.turn)
		if err == nil && id != 0 && len(old) == 0 {
			err = link.AdoptMaps(id, spec, old)
		}
		if err != nil {
			return err
		}
	}
	objs := new(bpfObjects)
	if err := spec.LoadAndAssign(objs, &ebpf.CollectionOptions{MapReplacements: old}); err != nil {
		return fmt.Errorf("load the counting program (needs Linux 5.8 with CONFIG_BPF_SYSCALL, and CAP_BPF and CAP_NET_ADMIN): %w", err)
	}
	c.objs = objs
	if _, _, err := c.read(); err != nil { // it says who has how much of the room
		return errors.Join(err, c.unload())
	}
	if err := c.attach(places, true); err != nil {
		return errors.Join(err, c.unload())
	}
	return nil
}

// Runs reports whether a former agent's program counts, or this one's.
func (c *Counter) Runs() bool {
	places, err := c.places()
	for _, p := range places {
		if id, _, err := link.Front(p.name, p.hook, p.turn); err == nil && id != 0 {
			return true
		}
	}
	return err != nil
}

// Follow counts at the interfaces that have come since. It does nothing while the Counter is off.
func (c *Counter) Follow() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objs == nil {
		return nil
	}
	places, err := c.places()
	if err != nil {
		return err
	}
	return c.attach(places, false)
}

// attach puts the program where it is not, or, anew, everywhere.
func (c *Counter) attach(places []place, anew bool) error {
	var errs []error
	c.learn(places)
	for _, p := range places {
		if id, first, err := link.Front(p.name, p.hook, p.turn); err == nil && id != 0 && first && !anew {
			continue
		}
		if err := link.AttachFront(p.name, p.hook, p.turn, c.objs.GvCount, bpfProgGvCount); err != nil && !errors.Is(err, link.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// learn notes the ports of interfaces. Those that have gone are kept: what came by them is counted still.
func (c *Counter) learn(places []place) {
	const gone = 4096
	if c.ports == nil || len(c.ports) > len(places)+gone {
		c.ports = map[uint32]string{}
	}
	for _, p := range places {
		c.ports[p.index] = p.port
	}
}

// Stop ends the counting, also that of a former agent, and forgets what was counted.
func (c *Counter) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	places, err := c.places()
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range places {
		errs = append(errs, link.DetachFront(p.name, p.hook, p.turn))
	}
	return errors.Join(append(errs, c.unload())...)
}

// Close lets go of program and counts; attached as they are, they go on.
func (c *Counter) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unload()
}

func (c *Counter) unload() error {
	if c.objs == nil {
		return nil
	}
	err := c.objs.Close()
	c.objs = nil
	return err
}

// Compiled reports whether the kernel compiled the program; interpreted it costs more than it is worth.
func (c *Counter) Compiled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objs == nil {
		return false
	}
	info, err := c.objs.GvCount.Info()
	if err != nil {
		return false
	}
	size, err := info.JitedSize()
	return err == nil && size > 0
}

// Read returns what was counted so far; nothing while the Counter is off.
func (c *Counter) Read() (map[Key]Count, Lost, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read()
}

func (c *Counter) read() (map[Key]Count, Lost, error) {
	if c.objs == nil {
		return map[Key]Count{}, Lost{}, nil
	}
	counts := make(map[Key]Count, c.most)
	defer func() { c.most = len(counts) }()
	since, err := boot()
	if err != nil {
		return nil, Lost{}, err
	}
	const batch = 4096
	keys, values := make([]wireHalf, batch), make([]wireCount, batch)
	for cursor, done := new(ebpf.MapBatchCursor), false; !done; {
		n, err := c.objs.GvHalves.BatchLookup(cursor, keys, values, nil)
		if done = errors.Is(err, ebpf.ErrKeyNotExist); err != nil && !done {
			return nil, Lost{}, fmt.Errorf("read what was counted: %w", err)
		}
		for i := range n {
			counts[keys[i].key()] = values[i].count(since, c.ports[keys[i].Ifindex])
		}
	}
	if err := c.share(counts); err != nil {
		return nil, Lost{}, err
	}
	var each []wireLost
	if err := c.objs.GvUncounted.Lookup(uint32(0), &each); err != nil {
		return nil, Lost{}, fmt.Errorf("read what was not counted: %w", err)
	}
	var lost Lost
	for _, l := range each {
		lost.Packets, lost.Bytes = lost.Packets+l.Packets, lost.Bytes+l.Bytes
	}
	return counts, lost, nil
}

// share tells the programs how much of the room each interface has. What they add at the same moment is in the next look.
func (c *Counter) share(counts map[Key]Count) error {
	has := map[uint32]uint32{0: uint32(len(counts))}
	for k := range counts {
		has[k.Index]++
	}
	var index, n uint32
	var gone []uint32
	for all := c.objs.GvShares.Iterate(); all.Next(&index, &n); {
		if _, there := has[index]; !there {
			gone = append(gone, index)
		}
	}
	for _, index := range gone {
		if err := c.objs.GvShares.Delete(index); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("say who has how much of what is counted: %w", err)
		}
	}
	for index, n := range has {
		if err := c.objs.GvShares.Put(index, n); err != nil && !errors.Is(err, unix.E2BIG) { // beyond, the room is all that bounds them
			return fmt.Errorf("say who has how much of what is counted: %w", err)
		}
	}
	return nil
}

// Take removes what was counted of a key, and returns it.
func (c *Counter) Take(k Key) (Count, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objs == nil {
		return Count{}, nil
	}
	since, err := boot()
	if err != nil {
		return Count{}, err
	}
	key, value := k.wire(), wireCount{}
	err = c.objs.GvHalves.LookupAndDelete(key, &value)
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) { // before Linux 5.14
		if err = c.objs.GvHalves.Lookup(key, &value); err == nil {
			err = c.objs.GvHalves.Delete(key)
		}
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return Count{}, fmt.Errorf("end a count: %w", err)
	}
	return value.count(since, c.ports[k.Index]), nil
}

// boot is when the clock of the kernel's programs was 0.
func boot() (time.Time, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return time.Time{}, fmt.Errorf("read the kernel's clock: %w", err)
	}
	return time.Now().Add(-time.Duration(now.Nano())), nil
}

func (w wireHalf) key() Key {
	port := func(b [2]byte) uint16 { return uint16(b[0])<<8 | uint16(b[1]) }
	return Key{Half{netip.AddrFrom16(w.Src).Unmap(), netip.AddrFrom16(w.Dst).Unmap(), port(w.SrcPort), port(w.DstPort), w.Proto}, w.Ifindex}
}

func (k Key) wire() wireHalf {
	port := func(n uint16) [2]byte { return [2]byte{byte(n >> 8), byte(n)} }
	return wireHalf{Src: k.Src.As16(), Dst: k.Dst.As16(), SrcPort: port(k.SrcPort), DstPort: port(k.DstPort), Proto: k.Proto, Ifindex: k.Index}
}

func (w wireCount) count(since time.Time, port string) Count {
	return Count{w.Packets, w.Bytes, since.Add(time.Duration(w.First)), since.Add(time.Duration(w.Last)), w.Flags, w.Opened, port}
}
