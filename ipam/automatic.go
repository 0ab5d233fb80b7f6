package ipam

import (
	"net/netip"
	"slices"
)

// automatics is how many pools are remembered that nobody chose: far more than are made at once.
const automatics = 256

func (a *Allocator) noteAutomatic(p netip.Prefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.automatic = append(a.automatic, p)
	if len(a.automatic) > automatics {
		a.automatic = a.automatic[1:]
	}
}

func (a *Allocator) noteChosen(p netip.Prefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.automatic = slices.DeleteFunc(a.automatic, func(q netip.Prefix) bool { return p == q })
}

// Automatic reports whether Docker has asked for a pool without a subnet, not long ago, and got p.
func (a *Allocator) Automatic(p netip.Prefix) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.automatic, p)
}
