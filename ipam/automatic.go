package ipam

import (
	"net/netip"
	"slices"
)

// automatics is how many pools are remembered that nobody chose: far more than are made at once.
const automatics = 256

func (a *prefixes) noteAutomatic(p netip.Prefix) {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	a.automatic = append(a.automatic, p)
	if len(a.automatic) > automatics {
		a.automatic = a.automatic[1:]
	}
}

func (a *prefixes) noteChosen(p netip.Prefix) {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	a.automatic = slices.DeleteFunc(a.automatic, func(q netip.Prefix) bool { return p == q })
}

// isAutomatic is Allocator.Automatic.
func (a *prefixes) isAutomatic(p netip.Prefix) bool {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	return slices.Contains(a.automatic, p)
}

// mostHeld is how many pools Docker may have at once of which it has made no network yet.
const mostHeld = 64

// held counts the pools that Docker got without choosing, and has neither made networks of nor given
// back. It asks on, and keeps what it got, as long as it refuses that.
func (a *prefixes) held() (n int) {
	a.core.mu.Lock()
	defer a.core.mu.Unlock()
	for _, p := range a.automatic {
		if _, reserved := a.core.state.pools[p]; reserved {
			n++
		}
	}
	return n
}
