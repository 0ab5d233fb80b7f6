package fastpath

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
)

// ownKey and ownValue are struct tuple and struct own of bpf/fastpath.c.
type (
	ownKey struct {
		Ends     [2]address
		Ports    [2][2]byte
		Protocol uint32
	}
	ownValue struct {
		What, Born, Check  uint64
		Visited            [2]uint64
		Last, Share, Heard uint32
		Ended              [2]uint8
		Answered, Called   uint8
		Begun              uint8
		_                  [7]uint8
	}

	// grantKey and grantValue are struct way and struct granted.
	grantKey struct {
		Src, Dst address
		Port     [2]byte
		_        uint16
	}
	grantValue struct{ What, Noted, Check uint64 }

	// seats is struct seats.
	seats struct{ Began, Gone, Refused uint32 }
)

// When what is silent is forgotten, as in the switch but for the first: what nobody has answered, and what has ended; what has begun to
// end; and the rest.
const (
	sweepEvery   = 5 * time.Second
	ownUnheard   = time.Minute
	ownHalf      = 15 * time.Minute
	ownSilent    = 24 * time.Hour
	ownBatch     = 1024
	ownShares    = 1024 // behind them is the place of all
	secretPlace  = uint32(1)
	currentPlace = uint32(0)
)

func (v ownValue) most() time.Duration {
	switch ended := v.Ended[0] + v.Ended[1]; {
	case ended == 2, v.Answered == 0:
		return ownUnheard
	case ended == 1:
		return ownHalf
	}
	return ownSilent
}

// sweep takes connections away of which the switch knows nothing and nothing is heard, and has the numbers of seats be right, whatever was
// killed in between: of shares that nobody uses meanwhile.
func (t *tables) sweep(now time.Duration) error {
	before, err := batch[uint32, seats](t.seats)
	if err != nil {
		return fmt.Errorf("read who has the fast path's connections: %w", err)
	}
	has, err := t.take(func(_ ownKey, v ownValue) bool { return now-time.Duration(v.Last)*time.Second > v.most() })
	if err != nil {
		return err
	}
	after, err := batch[uint32, seats](t.seats)
	if err != nil {
		return fmt.Errorf("read who has the fast path's connections: %w", err)
	}
	swept, err := batch[uint32, uint32](t.swept)
	if err != nil {
		return fmt.Errorf("read what the agent took of the fast path's connections: %w", err)
	}
	for i, is := range after {
		if was := before[i]; was.Began != is.Began || was.Gone != is.Gone {
			continue
		}
		if right := is.Began - is.Gone - has[i]; swept[i] != right {
			if err := t.put(t.swept, i, right); err != nil {
				return fmt.Errorf("say who has the fast path's connections: %w", err)
			}
		}
	}
	t.refused, t.refusals = after[ownShares].Refused-t.refusals, after[ownShares].Refused
	return nil
}

// forget takes those of addresses away, and of those of which that failed before.
func (t *tables) forget(addrs []netip.Addr) error {
	if t.left = append(t.left, addrs...); len(t.left) == 0 {
		return nil
	}
	of := map[address]bool{}
	for _, a := range t.left {
		of[addressOf(a)] = true
	}
	if _, err := t.take(func(k ownKey, _ ownValue) bool { return of[k.Ends[0]] || of[k.Ends[1]] }); err != nil {
		return err
	}
	t.left = nil
	return nil
}

// ungrant takes away all that may begin without the switch, and all that has. It is an error if more comes all the time.
func (t *tables) ungrant() error {
	for range 10 {
		granted, err := batch[grantKey, grantValue](t.granted)
		if err != nil {
			return fmt.Errorf("read what may begin without the switch: %w", err)
		}
		for k := range granted {
			if err := t.remove(t.granted, k); err != nil {
				return fmt.Errorf("take what may begin without the switch out of the fast path: %w", err)
			}
		}
		has, err := t.take(func(ownKey, ownValue) bool { return true })
		if err != nil || len(granted) == 0 && len(has) == 0 {
			return err
		}
	}
	return errors.New("take what may begin without the switch out of the fast path: there is always more")
}

// take takes away some, and returns how many there were, by their shares, and of all, but for those that it took.
func (t *tables) take(which func(ownKey, ownValue) bool) (has map[uint32]uint32, err error) {
	list, err := batch[ownKey, ownValue](t.own)
	if err != nil {
		return nil, fmt.Errorf("read the fast path's connections: %w", err)
	}
	has = map[uint32]uint32{}
	gone := map[uint32]uint32{}
	for k, v := range list {
		share := v.Share % ownShares
		if !which(k, v) {
			has[share]++
			has[ownShares]++
			continue
		}
		did, err := t.removed(t.own, k)
		if err != nil {
			return nil, fmt.Errorf("take a connection out of the fast path: %w", err)
		}
		if did {
			gone[share]++
			gone[ownShares]++
		}
	}
	for share, n := range gone {
		var swept uint32
		err := t.swept.Lookup(share, &swept)
		if err == nil {
			err = t.put(t.swept, share, swept+n)
		}
		if err != nil {
			return nil, fmt.Errorf("say who has the fast path's connections: %w", err)
		}
	}
	return has, nil
}

// batch is all that a map holds. Unlike an iterator it does not mind what comes and goes meanwhile.
func batch[K comparable, V any](m *ebpf.Map) (map[K]V, error) {
	out := map[K]V{}
	var cursor ebpf.MapBatchCursor
	keys, values := make([]K, ownBatch), make([]V, ownBatch)
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil, err
		}
		for i := range n {
			out[keys[i]] = values[i]
		}
		if err != nil {
			return out, nil
		}
	}
}

// Full says why connections with containers that rules are about begin by the switch that could begin without it; nil: none do.
func (p *Path) Full() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objs == nil || p.tables.refused == 0 {
		return nil
	}
	return fmt.Errorf("of containers with policies %d new connections were left to the switch in the last seconds, since their callers have as many open as the fast path has room for", p.tables.refused)
}

// Forget has no connection of an address go on for who had it before. Where that fails the path rests, and rules change all the same.
func (p *Path) Forget(addrs []netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objs == nil {
		return nil
	}
	return p.failed(p.tables.forget(addrs))
}

// Secret is what the switch is to know hints by (pipeline.Hint); 0: there are none. It stays as long as the maps do.
func (p *Path) Secret() (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objs == nil {
		return 0, nil
	}
	var secret uint32
	if err := p.tables.generation.Lookup(secretPlace, &secret); err != nil || secret != 0 {
		return secret, err
	}
	var b [4]byte
	for secret == 0 {
		_, _ = rand.Read(b[:])
		secret = binary.BigEndian.Uint32(b[:])
	}
	if err := put(p.tables.generation, secretPlace, secret); err != nil {
		return 0, fmt.Errorf("tell the fast path what the switch knows it by: %w", err)
	}
	return secret, nil
}
