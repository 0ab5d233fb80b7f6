package ipam

import (
	"net/netip"
	"slices"
)

// automatics is how many pools are remembered that nobody chose: far more than are made at once.
const automatics = 256

func (a *prefixes) noteAutomatic(p netip.Prefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.automatic = append(a.automatic, p)
	if len(a.automatic) > automatics {
		a.automatic = a.automatic[1:]
	}
}

func (a *prefixes) noteChosen(p netip.Prefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.automatic = slices.DeleteFunc(a.automatic, func(q netip.Prefix) bool { return p == q })
}

// Automatic reports whether Docker has asked for a pool without a subnet, not long ago, and got p.
func (a *prefixes) Automatic(p netip.Prefix) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.automatic, p)
}

// mostHeld is how many pools Docker may have at once of which it has made no network yet.
const mostHeld = 64

// held counts the pools that Docker got without choosing, and has neither made networks of nor given
// back. It asks on, and keeps what it got, as long as it refuses that.
func (a *prefixes) held() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.automatic {
		if _, reserved := a.state.pools[p]; reserved {
			n++
		}
	}
	return n
}
