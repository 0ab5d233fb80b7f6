package bypass

import (
	"errors"
	"fmt"
	mathbits "math/bits"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

// Hooks of nftables at interfaces (linux/netfilter.h).
const (
	inetIngress  = 5 // NF_INET_INGRESS
	familyNetdev = 5 // NFPROTO_NETDEV
)

// Judge says why nftables' rules, and those of iptables that stand there, would do more to t than let it pass; nil: they
// would not. It is pure.
func Judge(rules *nft.Ruleset, t Traffic) error {
	if err := atInterfaces(rules, t); err != nil {
		return err
	}
	if len(t.Peers) == 0 {
		return nil
	}
	j := sorting{rules: rules, traffic: t}
	j.group(slices.SortedFunc(slices.Values(t.Peers), netip.Addr.Compare))
	if j.passes || j.against == nil {
		return j.against
	}
	return errors.Unwrap(j.against) // that is so of all
}

// sorting finds out which peers rules are against. Most rules do not ask for one, and those that do mostly ask for a range. So
// all are looked at as one first, by the bits that their addresses have in common. Of rules that are against what these may
// be, each half of the peers is looked at, and so on. That stops as soon as it is known what to say.
type sorting struct {
	rules   *nft.Ruleset
	traffic Traffic
	against error // of the first of those that something is against
	passes  bool  // nothing is against some
	more    int   // judgements since against
}

// enough are as many judgements as are made to find one whom nothing is against, which is but a matter of words.
const enough = 32

// group takes peers in the order of their addresses.
func (s *sorting) group(peers []netip.Addr) {
	if s.against != nil {
		if s.more++; s.passes || s.more > enough {
			return
		}
	}
	first, last := peers[0], peers[len(peers)-1]
	all := common(first.AsSlice(), last.AsSlice())
	err := judgePeer(s.rules, s.traffic, all)
	switch {
	case err == nil:
		s.passes = true
	case first == last:
		if s.against == nil {
			s.against = fmt.Errorf("%w of or for %s", err, first)
		}
	default:
		// The halves are those of the first bit that is not the same: each has more in common than any others.
		other := slices.IndexFunc(peers, func(p netip.Addr) bool { return halves(all, p) })
		s.group(peers[:other])
		s.group(peers[other:])
	}
}

// halves reports whether an address has a 1 as the first bit that b does not know.
func halves(b bits, a netip.Addr) bool {
	for i, c := range a.AsSlice() {
		if u := b.u[i]; u != 0 {
			return c&(0x80>>mathbits.LeadingZeros8(u)) != 0
		}
	}
	return false
}

// atInterfaces are the chains at the NIC and at the VXLAN device. Programs at the NIC come before those of what arrives, and
// the kernel leaves out those of what leaves for packets that a program has redirected (skb->nf_skip_egress).
func atInterfaces(rules *nft.Ruleset, t Traffic) error {
	mine := func(name string) bool { return name == t.Device || name == t.Tunnel }
	for _, table := range rules.Tables {
		for _, c := range table.Chains {
			at := table.Family == familyNetdev || table.Family == nft.Inet && c.Hook == inetIngress
			if !c.Base || !at {
				continue
			}
			for _, d := range c.Devices {
				if mine(d) {
					return fmt.Errorf("the chain %s of nftables' table %s is at the interface %s, which packets would pass by", c.Name, table.Name, d)
				}
			}
			if c.Unnamed {
				return fmt.Errorf("the chain %s of nftables' table %s is at interfaces that the agent cannot tell", c.Name, table.Name)
			}
		}
		for _, d := range table.Offloads {
			if mine(d) {
				return fmt.Errorf("a flowtable of nftables' table %s is at the interface %s", table.Name, d)
			}
		}
	}
	return nil
}

// judgePeer looks at the packets from and to a peer, at all hooks that they pass.
func judgePeer(rules *nft.Ruleset, t Traffic, peer bits) error {
	for _, state := range []uint32{stateNew, stateEstablished, stateRelated} {
		for _, p := range []packet{
			t.received(peer, unix.NF_INET_PRE_ROUTING, state), t.received(peer, unix.NF_INET_LOCAL_IN, state),
			t.sent(peer, unix.NF_INET_LOCAL_OUT, state), t.sent(peer, unix.NF_INET_POST_ROUTING, state),
		} {
			if err := judgePacket(rules, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func judgePacket(rules *nft.Ruleset, p packet) error {
	for i := range rules.Tables {
		table := &rules.Tables[i]
		if table.Family != unix.NFPROTO_IPV4 && table.Family != nft.Inet {
			continue
		}
		for _, c := range table.Chains {
			if !c.Base || c.Hook != p.hook {
				continue
			}
			if err := judgeChain(table, c, p); err != nil {
				return err
			}
			if c.Priority <= conntrackPriority {
				p := p
				p.state = stateInvalid
				if err := judgeChain(table, c, p); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// conntrackPriority is where conntrack stands at its hooks (NF_IP_PRI_CONNTRACK): chains before that take all packets for invalid.
const conntrackPriority = -200

func judgeChain(table *nft.Content, c nft.InPlace, p packet) error {
	w := &way{table: table, packet: p, known: map[string]next{}}
	may, err := w.chain(c.Name)
	if err == nil && may&goesOn != 0 && c.Drops {
		err = fmt.Errorf("the policy of chain %s of table %s drops %s that no rule accepts", c.Name, table.Name, p)
	}
	return err
}

// way is that of a packet through one base chain and what it jumps to.
type way struct {
	table  *nft.Content
	packet packet
	depth  int
	reg    registers
	known  map[string]next // how chains end that it has been through
}

// next is what comes after a rule, or a chain, for a packet that nothing has happened to: a set, since what a rule that only
// may match says, and what the next rule says, may both be.
type next int

const (
	goesOn next = 1 << iota // the next rule; after a chain: what follows the jump, or the policy
	leaves                  // the end of the chain
	ends                    // nothing more in this base chain: it is accepted
	stays                   // what follows in the rule
)

// deepest is more than the kernel allows (NFT_JUMP_STACK_SIZE).
const deepest = 20

var errDeep = errors.New("its jumps are too deep to be followed")

// chain follows a chain of the table: goesOn, ends or both.
func (w *way) chain(name string) (next, error) {
	if may, known := w.known[name]; known {
		return may, nil
	}
	i := slices.IndexFunc(w.table.Chains, func(c nft.InPlace) bool { return c.Name == name })
	if i < 0 {
		return 0, fmt.Errorf("the chain %s of table %s is not known", name, w.table.Name)
	}
	if w.depth++; w.depth > deepest {
		return 0, fmt.Errorf("chain %s of table %s: %w", name, w.table.Name, errDeep)
	}
	defer func() { w.depth-- }()
	var may next
	on := true // to the next rule
	for n, r := range w.table.Chains[i].Rules {
		result, err := w.rule(r)
		if err != nil {
			if errors.As(err, new(inner)) {
				return 0, err
			}
			return 0, inner{fmt.Errorf("rule %d (handle %d%s) of chain %s of table %s %w %s", n+1, r.Handle, comment(r), name, w.table.Name, err, w.packet)}
		}
		may |= result & ends
		if result&leaves != 0 {
			may |= goesOn
		}
		if on = result&goesOn != 0; !on {
			break
		}
	}
	if on {
		may |= goesOn
	}
	w.known[name] = may
	return may, nil
}

// inner is an error that names its rule.
type inner struct{ error }

func (i inner) Unwrap() error { return i.error }

func comment(r nft.Line) string {
	if r.Comment == "" {
		return ""
	}
	return fmt.Sprintf(", %q", r.Comment)
}

// follow goes through a chain that a rule leads to. gone: what follows the rule is not for the packet.
func (w *way) follow(name string, gone bool) (next, error) {
	before := w.reg // the rest of this rule may be for it as well
	defer func() { w.reg = before }()
	may, err := w.chain(name)
	if err == nil && gone && may&goesOn != 0 {
		may = may&^goesOn | leaves
	}
	return may, err
}
