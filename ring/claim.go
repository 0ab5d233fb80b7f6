package ring

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Version orders claims: by Counter, a Lamport clock, then by the host that
// wrote the claim. The zero Version is below all others.
type Version struct {
	Counter uint64
	By      Owner
}

// Compare returns -1, 0 or +1 as v is below, equal to or above w.
func (v Version) Compare(w Version) int {
	return cmp.Or(cmp.Compare(v.Counter, w.Counter), strings.Compare(string(v.By), string(w.By)))
}

// Claim says that since Version, Owner owns every number of Block.
type Claim struct {
	Block   netip.Prefix
	Version Version
	Owner   Owner
}

// ErrInvalid is wrapped by the errors of Validate.
var ErrInvalid = errors.New("invalid claim")

// Validate returns nil if the claim is well formed: a masked block that is not
// an IPv4-mapped one (RFC 4291 section 2.5.5.2), a version that is not zero, and
// hosts that are well formed. Merge ignores claims that are not.
func (c Claim) Validate() error {
	switch {
	case !validBlock(c.Block):
		return fmt.Errorf("%w: block %s is not a masked IPv4 or IPv6 prefix", ErrInvalid, c.Block)
	case c.Version.Counter == 0:
		return fmt.Errorf("%w: on %s: version 0", ErrInvalid, c.Block)
	case !c.Version.By.Valid():
		return fmt.Errorf("%w: on %s: writer %.40q is not a host ID", ErrInvalid, c.Block, string(c.Version.By))
	case !c.Owner.Valid():
		return fmt.Errorf("%w: on %s: owner %.40q is not a host ID", ErrInvalid, c.Block, string(c.Owner))
	}
	return nil
}

// Dominates reports whether c makes d void: c is on the block of d or on one
// around it, and is newer. It is a strict partial order. Two claims on one block
// with one version (which no correct host writes) are ordered by their owner, so
// that all hosts keep the same one.
func (c Claim) Dominates(d Claim) bool {
	if !contains(c.Block, d.Block) {
		return false
	}
	order := c.Version.Compare(d.Version)
	if order == 0 && c.Block == d.Block {
		return c.Owner > d.Owner
	}
	return order > 0
}

// String is for people: "10.0.0.0/8 -> 00000000000000aa @7/00000000000000bb".
func (c Claim) String() string {
	return fmt.Sprintf("%s -> %s @%d/%s", c.Block, c.Owner, c.Version.Counter, c.Version.By)
}

// compareBlocks orders blocks by address family, address, and then the wider
// one first, so that a block comes before everything inside it.
func compareBlocks(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// contains reports whether every number of inner is in outer.
func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

func validBlock(p netip.Prefix) bool {
	return p.IsValid() && p == p.Masked() && !p.Addr().Is4In6()
}
