package fastpath

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"github.com/grapevine-net/grapevine/host/bypass"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// BareSays is what a host has said of its containers: those of a subnet, behind a MAC address, are of a VNID.
type BareSays struct {
	MAC    bypass.MAC
	Prefix netip.Prefix
	VTEP   netip.Addr // of who says so
	VNID   uint32
}

// BareHost is a neighbour that may take packets without headers. Takes: it has heard all that this host says now.
type BareHost struct {
	MAC   bypass.MAC
	VTEP  netip.Addr
	Takes bool
}

// Bare is what is sent and taken without headers.
type Bare struct {
	Says  []BareSays // of this host, too
	Hosts []BareHost
}

// BareLease is for how long a host that has heard of a neighbour that it takes packets without headers believes it; each Set
// begins it anew. BareLinger is for how long such packets are taken after this host has said that it takes none: then no other one sends any.
const (
	BareLease  = time.Minute
	BareLinger = 3 * BareLease
)

// ErrBareNotYet says that it is not known yet whether packets may go without headers.
var ErrBareNotYet = errors.New("nothing is direct yet")

// The programs at the NIC.
const (
	bareProgram    = bpfProgGvBare
	bareOutProgram = bpfProgGvBareOut
)

type (
	// bareKey is struct bare_key of the programs.
	bareKey struct {
		Bits uint32
		MAC  bypass.MAC
		_    uint16
		Addr address
	}

	bareValue struct {
		VTEP [4]byte
		VNID uint32
	}

	bareMAC struct {
		MAC bypass.MAC
		_   uint16
	}

	bareHostValue struct {
		VTEP    [4]byte
		Token   uint32
		Until   uint64
		Gateway uint32
		Pair    uint32 // 0: none
	}

	bareCounter struct{ Packets, Bytes uint64 }

	barePair struct{ Sent, Taken uint64 }
)

const barePairs = 65 // BARE_PAIRS

// MaxBareSays is how much hosts may have said, all together, with what they do not say any more.
const MaxBareSays = 16384

// bareBits are those of bareKey before the address.
const bareBits = 64

// bares are the programs' maps of what goes without headers, and what they hold.
type bares struct {
	says  map[bareKey]bareValue // nil: not read yet
	hosts map[bareMAC]bareHostValue
	// retired are those of says that this host does not say any more, since when.
	retired map[bareKey]time.Duration
	token   uint32
	nic     uint32 // where the programs are
	ends    *time.Timer
}

// Headerless is the part of a path that sends and takes packets without headers.
type Headerless struct{ Path *Path }

// Set has packets go without headers, and come so, as b says, until BareLease is over: what goes on is to be said again. Where
// packets between hosts are not direct by the mode of that name it says why not.
func (h Headerless) Set(b Bare) error {
	p := h.Path
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.on || p.objs == nil || !p.direct || p.judged:
		return errors.New("packets go without headers only where GRAPEVINE_FASTPATH=direct")
	case p.rests != nil:
		return p.rests
	case p.config.Underlay == 0 || p.tables.held.Locals == nil:
		return ErrBareNotYet
	}
	if err := h.set(b); err != nil {
		return fmt.Errorf("send and take packets without headers: %w", err)
	}
	return nil
}

// set takes back what is not so any more before it says anything new.
func (h Headerless) set(b Bare) error {
	p := h.Path
	if err := p.bare.read(p.objs); err != nil {
		return err
	}
	says, hosts := map[bareKey]bareValue{}, map[bareMAC]bareHostValue{}
	for _, s := range b.Says {
		key := keyOf(s.Prefix)
		says[bareKey{Bits: bareBits + key.Bits, MAC: s.MAC, Addr: key.Addr}] = bareValue{s.VTEP.As4(), s.VNID}
	}
	var leg uint32
	if l, err := link.Get(p.cfg.Leg); p.cfg.Leg == "" { // of no gateway
	} else if err == nil {
		leg = uint32(l.Index)
	} else if !errors.Is(err, link.ErrNotFound) {
		return err
	}
	until := uint64(clock() + BareLease)
	pairs := pairsOf(b.Hosts, p.bare.hosts)
	for _, h := range b.Hosts {
		v := bareHostValue{VTEP: h.VTEP.As4(), Token: p.bare.token, Gateway: leg, Pair: pairs[bareMAC{MAC: h.MAC}]}
		if h.Takes {
			v.Until = until
		}
		hosts[bareMAC{MAC: h.MAC}] = v
	}
	for k, v := range p.bare.hosts {
		if next := hosts[k]; v.Until == 0 || next.Until != 0 && next.VTEP == v.VTEP {
			continue
		}
		v.Until = 0
		if err := put(p.objs.GvBareHosts, k, v); err != nil {
			return err
		}
		p.bare.hosts[k] = v
	}
	for k, v := range p.bare.says {
		if _, stays := says[k]; stays {
			continue
		}
		if kept, err := h.retire(k, v); err != nil {
			return err
		} else if kept {
			continue
		}
		if err := p.objs.GvBareFrom.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		delete(p.bare.says, k)
	}
	for k, v := range says {
		delete(p.bare.retired, k)
		if p.bare.says[k] == v {
			continue
		}
		if err := put(p.objs.GvBareFrom, k, v); err != nil {
			return err
		}
		p.bare.says[k] = v
	}
	if err := h.attachTo(p.config.Underlay); err != nil {
		return err
	}
	for k := range p.bare.hosts {
		if _, stays := hosts[k]; stays {
			continue
		}
		if err := p.objs.GvBareHosts.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		delete(p.bare.hosts, k)
	}
	for k, v := range hosts {
		if p.bare.hosts[k] == v {
			continue
		}
		if err := put(p.objs.GvBareHosts, k, v); err != nil {
			return err
		}
		p.bare.hosts[k] = v
	}
	if p.bare.ends != nil {
		p.bare.ends.Stop()
		p.bare.ends = nil
	}
	return h.configureBare(1)
}

// pairsOf numbers the neighbours' counters, from 1 on. Who has a number keeps it.
func pairsOf(hosts []BareHost, before map[bareMAC]bareHostValue) map[bareMAC]uint32 {
	pairs, taken := map[bareMAC]uint32{}, map[uint32]bool{0: true}
	for _, h := range hosts {
		k := bareMAC{MAC: h.MAC}
		if n := before[k].Pair; !taken[n] {
			pairs[k], taken[n] = n, true
		}
	}
	next := uint32(1)
	for _, h := range hosts {
		k := bareMAC{MAC: h.MAC}
		for pairs[k] == 0 && next < barePairs {
			if !taken[next] {
				pairs[k] = next
			}
			next++
		}
	}
	return pairs
}

// retire keeps what is not said any more for as long as others may go by it. In the name of this host's containers nobody else is to
// speak; and what another host has said is judged as ever, since it may not have heard yet that it is taken no more, or not by its MAC address.
func (h Headerless) retire(k bareKey, v bareValue) (kept bool, err error) {
	p := h.Path
	own := v.VTEP == p.config.VTEP
	since, retired := p.bare.retired[k]
	if retired && clock()-since > BareLinger || !own && len(p.bare.says) > MaxBareSays/2 {
		delete(p.bare.retired, k)
		return false, nil
	}
	if !retired {
		p.bare.retired[k] = clock()
	}
	if v.VNID == 0 || !own {
		return true, nil
	}
	v.VNID = 0
	if err := put(p.objs.GvBareFrom, k, v); err != nil {
		return true, err
	}
	p.bare.says[k] = v
	return true, nil
}

func (h Headerless) configureBare(yes uint16) error {
	p := h.Path
	if p.config.Bare == yes {
		return nil
	}
	c := p.config
	c.Bare = yes
	return p.configure(c)
}

// attachTo puts the programs at the NIC: nothing is taken from a neighbour, or sent to it, before they are there.
func (h Headerless) attachTo(nic uint32) error {
	p := h.Path
	if p.bare.nic == nic { // and nobody has taken them away
		out, err := link.AttachedTCX(p.cfg.Underlay.Device, link.Egress, bareOutProgram)
		in, inErr := link.AttachedTCX(p.cfg.Underlay.Device, link.Ingress, bareProgram)
		if err := errors.Join(err, inErr); err != nil || in != 0 && out != 0 {
			return err
		}
	}
	if err := link.AttachTCX(p.cfg.Underlay.Device, link.Egress, p.objs.GvBareOut, bareOutProgram); err != nil {
		return err
	}
	if err := link.AttachTCX(p.cfg.Underlay.Device, link.Ingress, p.objs.GvBare, bareProgram); err != nil {
		return err
	}
	p.bare.nic = nic
	return nil
}

// Unset has nothing go without headers any more. What comes so is handed to the VXLAN device, until BareLinger is over; Set may come before that.
// The other hosts are to hear of it at once.
func (h Headerless) Unset() error {
	p := h.Path
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on && p.tables.held.Locals == nil {
		return ErrBareNotYet
	}
	return h.unset()
}

func (h Headerless) unset() error {
	p := h.Path
	var errs []error
	if p.objs != nil && p.config.Bare != 0 {
		errs = append(errs, h.configureBare(0))
	}
	if there, err := h.atNIC(); err != nil {
		errs = append(errs, err)
	} else if there && p.bare.ends == nil {
		p.bare.ends = time.AfterFunc(BareLinger, func() {
			if err := h.End(); err != nil {
				p.log.Warn("take the programs away that took packets without headers", "error", err)
			}
		})
	}
	return errors.Join(errs...)
}

// End takes no packets without headers any more, if none are to go so.
func (h Headerless) End() error {
	p := h.Path
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objs != nil && p.config.Bare != 0 {
		return nil // again, meanwhile
	}
	return h.end()
}

// Remove is Path.Stop, and nothing stays.
func (h Headerless) Remove() error {
	p := h.Path
	p.mu.Lock()
	err := errors.Join(h.end(), link.DetachTC(link.WireGuard, link.Ingress, insideProgram))
	p.mu.Unlock()
	return errors.Join(err, p.Stop())
}

func (h Headerless) end() error {
	p := h.Path
	if p.bare.ends != nil {
		p.bare.ends.Stop()
	}
	p.bare = bares{}
	return h.leaveNICs("")
}

// leaveNICs takes the programs from all devices but one.
func (h Headerless) leaveNICs(but string) error {
	list, err := link.List("")
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range list {
		if l.Name == but {
			continue
		}
		errs = append(errs, link.DetachTCX(l.Name, link.Ingress, bareProgram), link.DetachTCX(l.Name, link.Egress, bareOutProgram))
	}
	return errors.Join(errs...)
}

// atNIC reports whether what comes without headers is taken, maybe since a former agent.
func (h Headerless) atNIC() (bool, error) {
	p := h.Path
	id, err := link.AttachedTCX(p.cfg.Underlay.Device, link.Ingress, bareProgram)
	return id != 0, err
}

// quiet has the program of a former agent hand all to the VXLAN device: nobody keeps what it knows of containers.
func (h Headerless) quiet(found map[string]*ebpf.Map) error {
	var theirs configValue
	config := found[bpfMapGvConfig]
	if config == nil || config.Lookup(uint32(0), &theirs) != nil {
		return h.leaveNICs("")
	}
	theirs.On = 0
	return put(config, uint32(0), theirs)
}

// linger is for a path that ends, of which others may still believe that it takes packets without headers.
func (h Headerless) linger() error {
	p := h.Path
	there, err := h.atNIC()
	if err != nil || !there {
		return err
	}
	spec, err := loadBpf()
	if err != nil {
		return fmt.Errorf("read the fast path's programs: %w", err)
	}
	id, err := link.AttachedTCX(p.cfg.Underlay.Device, link.Ingress, bareProgram)
	if err != nil {
		return err
	}
	if p.objs != nil && p.config.Bare != 0 {
		off := p.config
		off.On, off.Bare = 0, 0
		if err := p.configure(off); err != nil {
			return err
		}
	}
	found := map[string]*ebpf.Map{}
	defer func() {
		for _, m := range found {
			_ = m.Close()
		}
	}()
	if err := link.AdoptMaps(id, spec, found); err != nil {
		return err
	}
	return errors.Join(h.quiet(found), h.unset())
}

// adoptInto adds to maps those of the programs of a former agent, which stay until Set puts others in their place.
func (h Headerless) adoptInto(spec *ebpf.CollectionSpec, old map[string]*ebpf.Map) error {
	p := h.Path
	found := map[string]*ebpf.Map{}
	for hook, name := range map[link.Hook]string{link.Ingress: bareProgram, link.Egress: bareOutProgram} {
		id, err := link.AttachedTCX(p.cfg.Underlay.Device, hook, name)
		if err == nil && id != 0 {
			err = link.AdoptMaps(id, spec, found)
		}
		if err != nil {
			return err
		}
	}
	if old[bpfMapGvConfig] == nil && len(found) > 0 { // the other programs' maps are not taken over
		if err := h.quiet(found); err != nil {
			return err
		}
	}
	for name, m := range found {
		switch name {
		case bpfMapGvBareFrom, bpfMapGvBareHosts, bpfMapGvBareCounts, bpfMapGvBarePairs:
			old[name] = m
		default:
			_ = m.Close()
		}
	}
	return nil
}

// read fills in what the maps hold, maybe of a former agent.
func (b *bares) read(objs *bpfObjects) error {
	if b.says != nil {
		return nil
	}
	says, hosts, token := map[bareKey]bareValue{}, map[bareMAC]bareHostValue{}, uint32(0)
	var k bareKey
	var v bareValue
	it := objs.GvBareFrom.Iterate()
	for it.Next(&k, &v) {
		says[k] = v
	}
	if err := it.Err(); err != nil {
		return err
	}
	var mac bareMAC
	var host bareHostValue
	it = objs.GvBareHosts.Iterate()
	for it.Next(&mac, &host) {
		hosts[mac], token = host, host.Token
	}
	if err := it.Err(); err != nil {
		return err
	}
	for token == 0 {
		token = rand.Uint32()
	}
	b.says, b.hosts, b.token, b.retired = says, hosts, token, map[bareKey]time.Duration{}
	return nil
}

// BareCounts is what went and came without headers, in packets.
type BareCounts struct {
	Sent, Delivered, Switched, Lost pipeline.Count
	// Forged came in the name of a host that does not say so, and was dropped; Kept was to leave in this host's, and is of none of its containers.
	Forged, Kept pipeline.Count
}

// Counts reads them; nothing while the path is off.
func (h Headerless) Counts() (c BareCounts, err error) {
	p := h.Path
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objs == nil {
		return c, nil
	}
	for i, n := range []*pipeline.Count{&c.Sent, &c.Delivered, &c.Switched, &c.Lost, &c.Forged, &c.Kept} {
		var cpus []bareCounter
		if err := p.objs.GvBareCounts.Lookup(uint32(i), &cpus); err != nil {
			return c, fmt.Errorf("read counter %d of packets without headers: %w", i, err)
		}
		for _, one := range cpus {
			n.Packets += one.Packets
			n.Bytes += one.Bytes
		}
	}
	return c, nil
}

// Between is what has gone without headers to a neighbour and come from it, by its MAC address, in packets as the kernel had them: it puts
// several together. A neighbour that is not known, or none of the first of many, has no count: false.
func (h Headerless) Between(mac bypass.MAC) (sent, taken uint64, known bool, err error) {
	p := h.Path
	p.mu.Lock()
	defer p.mu.Unlock()
	v, known := p.bare.hosts[bareMAC{MAC: mac}]
	if p.objs == nil || v.Pair == 0 {
		return 0, 0, false, nil
	}
	var cpus []barePair
	if err := p.objs.GvBarePairs.Lookup(v.Pair, &cpus); err != nil {
		return 0, 0, false, fmt.Errorf("read what went without headers to %s: %w", mac, err)
	}
	for _, one := range cpus {
		sent += one.Sent
		taken += one.Taken
	}
	return sent, taken, known, nil
}
