package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Realm is a person's word on which networks a network is one with: containers of networks of one realm reach each
// other by their addresses, whichever VNID these have. Any host may write any. Where there is none, or none that Applies,
// a network is by itself. Agents that know of no realms keep all networks apart.
type Realm struct {
	Network string `cbor:"1,keyasint,omitempty"` // Network.Name
	// VNID and Made are those of the network that is meant: a later one of the same name is by itself.
	VNID uint32 `cbor:"2,keyasint,omitempty"`
	Made string `cbor:"3,keyasint,omitempty"`
	// With is what the networks of one realm have in common, a number of nobody else; "": it is by itself.
	With string `cbor:"4,keyasint,omitempty"`
	// Global says that it reaches all networks, and they reach it.
	Global bool   `cbor:"5,keyasint,omitempty"`
	Author string `cbor:"6,keyasint,omitempty"` // the name of the host where it was said, for people
	Base   []Edit `cbor:"7,keyasint,omitempty"` // as Policy.Base
}

// Key names the record.
func (r Realm) Key() Key { return Key{KindRealm, r.Network} }

func (Realm) speaker() NodeID { return "" }

func (r Realm) validate() error {
	err := errors.Join(name("network", r.Network), optional("making", r.Made), optional("realm", r.With), optional("author", r.Author), edits(r.Base))
	if r.VNID > maxVNID {
		err = errors.Join(err, fmt.Errorf("VNID %d is above %d (24 bits)", r.VNID, maxVNID))
	}
	if r.Global && r.With != "" {
		err = errors.Join(err, fmt.Errorf("global, and of the realm %s", r.With))
	}
	return err
}

func (r Realm) base() []Edit { return r.Base }

// Over is Policy.Over.
func (r Realm) Over(s *Snapshot, lost ...Version) Realm {
	r.Base = over(s, r.Key(), lost)
	return r
}

// Same reports whether both say the same, whoever said it and over what.
func (r Realm) Same(o Realm) bool {
	return r.Network == o.Network && r.VNID == o.VNID && r.Made == o.Made && r.With == o.With && r.Global == o.Global
}

// Applies reports whether it is about this network, and not one of that name from before. One of VNID 0
// reaches all whatever is said.
func (r Realm) Applies(n Network) bool {
	return r.Network == n.Name && r.VNID == n.VNID && r.Made == n.Made && n.VNID != 0 && !n.Provisional()
}

// Realms are what a snapshot says of networks that are not by themselves, by their names.
type Realms map[string]Realm

// Realms returns the realms that apply. A network is not among them if the others of its realm are gone, or not there yet.
func (s *Snapshot) Realms() Realms {
	var out Realms
	count := map[string]int{}
	for r := range All[Realm](s) {
		n, there := Get[Network](s, r.Network)
		if !there || !r.Applies(n) || r.With == "" && !r.Global {
			continue
		}
		if out == nil {
			out = Realms{}
		}
		out[r.Network] = r
		count[r.With]++
	}
	maps.DeleteFunc(out, func(_ string, r Realm) bool { return !r.Global && count[r.With] == 1 })
	return out
}

// Meet reports whether containers of two networks reach each other.
func (all Realms) Meet(a, b Network) bool {
	if a.Name == b.Name || a.VNID == b.VNID || all.Everywhere(a) || all.Everywhere(b) {
		return true
	}
	with := all[a.Name].With
	return with != "" && with == all[b.Name].With
}

// With returns the other networks that one is joined with, by name.
func (all Realms) With(network string) (others []string) {
	for name, r := range all {
		if with := all[network].With; name != network && with != "" && r.With == with {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	return others
}

// Everywhere reports whether a network reaches all, and they reach it.
func (all Realms) Everywhere(n Network) bool { return n.VNID == 0 || all[n.Name].Global }
