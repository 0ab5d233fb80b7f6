package ipam

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
)

// Lease is an address that this host has handed out.
type Lease struct {
	Addr   netip.Addr
	Subnet netip.Prefix
	// Endpoint is Docker's ID of the endpoint that has the address; "" from the
	// RequestAddress call to CreateEndpoint and from DeleteEndpoint to ReleaseAddress.
	Endpoint string `json:",omitempty"`
	// Since is when the lease was made or its Endpoint last changed, or when this agent found
	// it on its disk: what the clock said before that may be anything.
	Since time.Time
}

// pool is a prefix that Docker asked for: a network's that is not created yet,
// or that is created and has a Subnet record as well.
type pool struct {
	Prefix   netip.Prefix
	Range    netip.Prefix // --ip-range; invalid: the whole prefix
	Gateway  netip.Addr   // as asked for; invalid: the first address
	HostBits uint8        `json:",omitempty"`
	Since    time.Time
}

// vnidLease is a VNID that this host has handed out.
type vnidLease struct {
	VNID uint32
	// Since is when it was handed out or last seen in a Network record: for an agent of before
	// Age was there, which is the age of the state file then.
	Since time.Time
	Age   time.Duration
}

// state is what an Allocator keeps on disk, one entry of its Disk for each value.
type state struct {
	leases   map[netip.Addr]Lease
	pools    map[netip.Prefix]pool
	vnids    map[uint32]vnidLease
	seen     map[uint32]time.Duration          // VNID -> the age at which a network of any host had it
	cursors  map[netip.Prefix]netip.Addr       // last handed out in a subnet or number space
	promises map[cluster.NodeID]cluster.NodeID // dead host -> the heir that was promised its ranges
	attempts map[cluster.NodeID]uint64         // dead host -> the heir's number of its request; this one -> its own last one
	dirty    map[string]any                    // nil: to be deleted
	held     atomic.Int64                      // len(leases), for who does not wait for the disk
}

func newState() state {
	return state{
		leases: map[netip.Addr]Lease{}, pools: map[netip.Prefix]pool{}, vnids: map[uint32]vnidLease{}, seen: map[uint32]time.Duration{},
		cursors:  map[netip.Prefix]netip.Addr{},
		promises: map[cluster.NodeID]cluster.NodeID{}, attempts: map[cluster.NodeID]uint64{}, dirty: map[string]any{},
	}
}

// load takes one entry from disk. Entries of kinds that it does not know are of
// a newer agent and are left alone.
func (s *state) load(key string, value []byte) error {
	kind, id, _ := strings.Cut(key, " ")
	var err error
	switch kind {
	case "lease":
		var l Lease
		err = json.Unmarshal(value, &l)
		s.leases[l.Addr] = l
		s.held.Store(int64(len(s.leases)))
	case "pool":
		var p pool
		err = json.Unmarshal(value, &p)
		s.pools[p.Prefix] = p
	case "vnid":
		var v vnidLease
		err = json.Unmarshal(value, &v)
		s.vnids[v.VNID] = v
	case "seen":
		var v uint64
		var age time.Duration
		if v, err = strconv.ParseUint(id, 10, 32); err == nil {
			err = json.Unmarshal(value, &age)
		}
		s.seen[uint32(v)] = age
	case "cursor":
		err = loadPair(s.cursors, id, value)
	case "home": // of an older agent
		s.dirty[key] = nil
	case "promise":
		var heir cluster.NodeID
		err = json.Unmarshal(value, &heir)
		s.promises[cluster.NodeID(id)] = heir
	case "attempt":
		var attempt uint64
		err = json.Unmarshal(value, &attempt)
		s.attempts[cluster.NodeID(id)] = attempt
	}
	if err != nil {
		return fmt.Errorf("entry %q: %w", key, err)
	}
	return nil
}

func loadPair[V any](m map[netip.Prefix]V, id string, value []byte) error {
	var v V
	if err := json.Unmarshal(value, &v); err != nil {
		return err
	}
	p, err := netip.ParsePrefix(id)
	m[p] = v
	return err
}

// found makes leases and pools that were on the disk count from now.
func (s *state) found(now time.Time) {
	for addr, l := range s.leases {
		l.Since = now
		s.leases[addr] = l
	}
	for p, q := range s.pools {
		q.Since = now
		s.pools[p] = q
	}
}

// The set and drop functions change the state and note the change for save.

func (s *state) setLease(l Lease) {
	s.leases[l.Addr] = l
	s.held.Store(int64(len(s.leases)))
	s.dirty["lease "+l.Addr.String()] = l
}

func (s *state) dropLease(addr netip.Addr) {
	delete(s.leases, addr)
	s.held.Store(int64(len(s.leases)))
	s.dirty["lease "+addr.String()] = nil
}

func (s *state) setPool(p pool) {
	s.pools[p.Prefix] = p
	s.dirty["pool "+p.Prefix.String()] = p
}

func (s *state) dropPool(p netip.Prefix) {
	delete(s.pools, p)
	s.dirty["pool "+p.String()] = nil
}

func (s *state) setVNID(v vnidLease) {
	s.vnids[v.VNID] = v
	s.dirty["vnid "+strconv.FormatUint(uint64(v.VNID), 10)] = v
}

func (s *state) dropVNID(v uint32) {
	delete(s.vnids, v)
	s.dirty["vnid "+strconv.FormatUint(uint64(v), 10)] = nil
}

func (s *state) setSeen(v uint32, age time.Duration) {
	s.seen[v] = age
	s.dirty["seen "+strconv.FormatUint(uint64(v), 10)] = age
}

func (s *state) dropSeen(v uint32) {
	delete(s.seen, v)
	s.dirty["seen "+strconv.FormatUint(uint64(v), 10)] = nil
}

func (s *state) setCursor(within netip.Prefix, at netip.Addr) {
	s.cursors[within] = at
	s.dirty["cursor "+within.String()] = at
}

func (s *state) dropCursor(within netip.Prefix) {
	delete(s.cursors, within)
	s.dirty["cursor "+within.String()] = nil
}

func (s *state) setPromise(dead, heir cluster.NodeID, attempt uint64) {
	s.promises[dead] = heir
	s.dirty["promise "+string(dead)] = heir
	s.setAttempt(dead, attempt)
}

func (s *state) setAttempt(id cluster.NodeID, attempt uint64) {
	s.attempts[id] = attempt
	s.dirty["attempt "+string(id)] = attempt
}

func (s *state) dropPromise(dead cluster.NodeID) {
	delete(s.promises, dead)
	s.dirty["promise "+string(dead)] = nil
	delete(s.attempts, dead)
	s.dirty["attempt "+string(dead)] = nil
}

// save makes all changes since the last save durable. If the disk refuses, the
// changes stay noted, for the next save: memory is then ahead of the disk, which
// is the safe side for leases (they are held) as long as nothing is answered.
func (s *state) save(d Disk) error {
	if len(s.dirty) == 0 {
		return nil
	}
	put := map[string][]byte{}
	var del []string
	for key, v := range s.dirty {
		if v == nil {
			del = append(del, key)
			continue
		}
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("encode entry %q: %w", key, err)
		}
		put[key] = b
	}
	if err := d.Save(put, del); err != nil {
		return fmt.Errorf("save leases: %w", err)
	}
	clear(s.dirty)
	return nil
}
