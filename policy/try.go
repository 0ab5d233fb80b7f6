package policy

import (
	"net/netip"
	"slices"
)

// Trial compares what policies let through before and after they change. It asks for connections of those whom policies
// that change select: of others nothing changes.
type Trial struct {
	Before, After World
	// Most is how many connections are asked for at most.
	Most int

	Asked   int
	Partly  bool // there were more
	Changes []Change
}

// Change is a connection that is let through in one of two worlds alone.
type Change struct {
	From, To Peer
	Proto    uint8
	Port     uint16 // of ICMP a type
	Other    bool   // it stands for ports that no rule names
	Allowed  bool   // afterwards
	Why      []Ref  // afterwards
}

// attempt is a port that is asked for.
type attempt struct {
	proto uint8
	port  uint16
	other bool
}

// With is the world with policies in place of those of their keys.
func (w World) With(policies ...Policy) World {
	w.Policies = slices.Clone(w.Policies)
	for _, p := range policies {
		i := slices.IndexFunc(w.Policies, func(o Policy) bool { return o.Key == p.Key })
		if i < 0 {
			w.Policies = append(w.Policies, p)
		} else {
			w.Policies[i] = p
		}
	}
	return w
}

// Run compares the worlds, which differ in these policies.
func (t *Trial) Run(keys ...Key) {
	var changed []Policy
	for _, w := range []World{t.Before, t.After} {
		for _, p := range w.Policies {
			if slices.Contains(keys, p.Key) {
				changed = append(changed, p)
			}
		}
	}
	selected := map[string]bool{}
	for _, w := range []World{t.Before, t.After} {
		for _, p := range changed {
			certain, possible := w.Selected(p.Subject)
			for _, e := range slices.Concat(certain, possible) {
				selected[e.ID] = true
			}
		}
	}
	attempts := attemptsOf(changed)
	outside := outsideOf(changed)
	for i := range t.After.Endpoints {
		subject := &t.After.Endpoints[i]
		if !selected[subject.ID] {
			continue
		}
		own := Peer{Endpoint: subject.ID}
		for j := range t.After.Endpoints {
			peer := &t.After.Endpoints[j]
			if peer.ID == subject.ID || peer.Network != subject.Network {
				continue
			}
			t.ask(own, Peer{Endpoint: peer.ID}, attempts)
			if !selected[peer.ID] { // else it has its own turn
				t.ask(Peer{Endpoint: peer.ID}, own, attempts)
			}
		}
		for _, p := range outside {
			t.ask(own, p, attempts)
			if p.Name == "" {
				t.ask(p, own, attempts)
			}
		}
	}
}

func (t *Trial) ask(from, to Peer, attempts []attempt) {
	for _, a := range attempts {
		if t.Asked >= t.Most {
			t.Partly = true
			return
		}
		t.Asked++
		after := t.After.Verdict(from, to, a.proto, a.port)
		if t.Before.Verdict(from, to, a.proto, a.port).Allowed == after.Allowed {
			continue
		}
		c := Change{From: from, To: to, Proto: a.proto, Port: a.port, Other: a.other, Allowed: after.Allowed}
		if after.Allowed {
			c.Why = slices.Concat(after.Egress.Rules, after.Ingress.Rules)
		}
		for _, d := range []Decision{after.Egress, after.Ingress} {
			if !after.Allowed && !d.Allowed {
				c.Why = append(c.Why, d.Rules...)
			}
		}
		t.Changes = append(t.Changes, c)
	}
}

// attemptsOf are the ports that policies name, at both ends of their ranges, one of TCP that they do not, and a ping.
func attemptsOf(policies []Policy) (list []attempt) {
	named := map[attempt]bool{}
	for _, p := range policies {
		for _, r := range slices.Concat(p.Ingress, p.Egress) {
			for _, q := range r.Ports {
				if q.Name != "" || q.From == 0 {
					continue
				}
				for _, port := range []uint16{q.From, q.To} {
					if a := (attempt{q.Proto, port, false}); !named[a] {
						named[a] = true
						list = append(list, a)
					}
				}
			}
		}
	}
	other := attempt{TCP, 49151, true} // the last one that is registered
	for named[attempt{TCP, other.port, false}] {
		other.port--
	}
	const echo = 8
	return append(list, other, attempt{ICMP, echo, false})
}

// outsideOf are the first addresses of the blocks that policies name, the names, and an address that is in none.
func outsideOf(policies []Policy) (list []Peer) {
	add := func(p Peer) {
		if !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	for _, p := range policies {
		for _, r := range slices.Concat(p.Ingress, p.Egress) {
			for _, b := range r.Blocks {
				if r.Within {
					continue
				}
				if a := b.Prefix.Addr(); b.Prefix.Bits() > 0 && a.Is4() {
					if b.Prefix.Bits() < a.BitLen() {
						a = a.Next()
					}
					add(Peer{Addr: a})
				}
			}
			for _, d := range r.Domains {
				if name := string(d); name[0] == '*' {
					add(Peer{Name: "any" + name[1:]})
				} else {
					add(Peer{Name: name})
				}
			}
		}
	}
	add(Peer{Addr: netip.MustParseAddr("203.0.113.1")}) // RFC 5737: nobody's
	return list
}
