// Package nat is the agent's hand on iptables. Chains of its own
//   - masquerade what leaves the overlay for the outside;
//   - let it through the host's FORWARD chain, where Docker sets the policy to DROP (package filter says what may not pass);
//   - lead published ports of the host to containers (Publish);
//   - have the rules that other packages want besides (Config.Rules).
//
// Rules of others are never touched.
//
// It works with the iptables that is in PATH, on nf_tables or legacy, in the network
// namespace of the calling thread.
package nat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-iptables/iptables"

	"github.com/grapevine-net/grapevine/pulse"
)

// Config is all that the rules depend on.
type Config struct {
	// Interface is the gateway's, gv0.
	Interface string
	// CIDRs are the cluster CIDRs and pools, both families. A family without any has
	// no rules.
	CIDRs []netip.Prefix
	// Gateways are the addresses of Interface, each with the length of the subnet that is
	// behind it.
	Gateways []netip.Prefix
	// Hosts are where hosts' own addresses lie. What other hosts send from there, by Interface,
	// to containers goes back out of it, from the gateway address of the container's subnet.
	Hosts []netip.Prefix
	// Internal are the subnets whose containers reach no published port.
	Internal []netip.Prefix
	// Sources are addresses from which subnets reach the outside, where this host has them; other
	// subnets leave by whatever address the host takes.
	Sources []Source
	// Exposed are ports that this host has for the outside as others do, of TCP, UDP or both, in order: nothing leaves by
	// one of them.
	Exposed []uint16
	// Open are subnets that the outside reaches at containers' own addresses, as far as package filter lets it.
	Open []netip.Prefix
	// Rules are further ones, where their family has any.
	Rules []Rule
	// served is what Serve declared.
	served []Source
}

// Rule is a rule for a chain of ours, which is jumped to from a built-in one: PREROUTING
// of nat, or INPUT of filter.
type Rule struct {
	V6           bool
	Table, Chain string // the built-in one
	Text         string // match and target, as `iptables -S` prints them
}

// NAT keeps the rules of one network namespace. Its methods may be called
// concurrently; they block while another program holds the lock of iptables, for five seconds
// at each program that they run, and while another method does. Absent alone does not.
type NAT struct {
	mu  sync.Mutex
	cfg Config
	set bool // cfg is to be kept
	// applied: cfg was in place once. Run sees to it that it stays.
	applied bool
	// claimed are the exposed ports of which claims have ended (endClaims).
	claimed []uint16
	// published is what Publish declared.
	published []Published
	// forbidden are the families whose chain FORWARD got the policy DROP from us.
	forbidden map[iptables.Protocol]bool
	bridges   []string // see Bridges
	// elsewhere are the families of which the other framework's chain FORWARD has the policy: see keepPolicy.
	elsewhere map[iptables.Protocol]bool
	open      map[iptables.Protocol]*iptables.IPTables
	real      map[iptables.Protocol]string // the programs of open
	found     map[iptables.Protocol]found  // where they were found
	left      bool                         // nothing that is to go is left in the other framework
	here      map[netip.Addr]bool          // this host's addresses; nil: nobody wants to know
	absent    atomic.Pointer[[]netip.Addr] // see Absent
	// modes is what each family's iptables works on.
	modes       map[iptables.Protocol]backend
	generations Generations // for Run
	// glance is how often Run looks whether anything changed (a system call or two).
	glance time.Duration
}

// New returns a NAT that keeps nothing yet.
func New() *NAT {
	return &NAT{
		forbidden: make(map[iptables.Protocol]bool),
		elsewhere: make(map[iptables.Protocol]bool),
		real:      make(map[iptables.Protocol]string),
		found:     make(map[iptables.Protocol]found),
		open:      make(map[iptables.Protocol]*iptables.IPTables),
		modes:     make(map[iptables.Protocol]backend),
		glance:    2 * time.Second,
	}
}

// Set declares the whole state and applies what is missing. The rules of a family that
// has no CIDRs any more go. To declare the same again costs nothing: no program is run.
func (n *NAT) Set(_ context.Context, cfg Config) error {
	if cfg.Interface == "" {
		return errors.New("masquerading needs the gateway's interface")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.set && n.applied && n.cfg.equal(cfg) {
		return nil
	}
	n.cfg, n.set = Config{
		cfg.Interface, slices.Clone(cfg.CIDRs), slices.Clone(cfg.Gateways), slices.Clone(cfg.Hosts), slices.Clone(cfg.Internal), slices.Clone(cfg.Sources), slices.Clone(cfg.Exposed), slices.Clone(cfg.Open), slices.Clone(cfg.Rules), n.cfg.served,
	}, true
	return n.apply()
}

func (c Config) equal(d Config) bool {
	return c.Interface == d.Interface && slices.Equal(c.CIDRs, d.CIDRs) && slices.Equal(c.Gateways, d.Gateways) &&
		slices.Equal(c.Hosts, d.Hosts) && slices.Equal(c.Internal, d.Internal) && slices.Equal(c.Sources, d.Sources) && slices.Equal(c.Exposed, d.Exposed) && slices.Equal(c.Open, d.Open) && slices.Equal(c.Rules, d.Rules)
}

// Remove removes chains and jumps of both families. None there is no error.
func (n *NAT) Remove(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.set, n.claimed = false, nil
	n.noteAbsent()
	return errors.Join(n.clear(iptables.ProtocolIPv4, look(iptables.ProtocolIPv4)), n.clear(iptables.ProtocolIPv6, look(iptables.ProtocolIPv6)))
}

// inspect is how often Run looks at the rules themselves, by several processes, lest
// a change went unseen: legacy tables of the same size look the same.
const inspect = 10 * time.Minute

// Run puts the rules back when another program has flushed them, within about two
// seconds, until ctx is done, and returns its error. What fails is logged and tried
// again.
func (n *NAT) Run(ctx context.Context, log *slog.Logger) error {
	var seen string
	var inspected time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-pulse.After(n.glance):
			current, err := n.fingerprint()
			if err == nil && current == seen && now.Sub(inspected) < inspect && !n.moved(log) {
				continue
			}
			if err := n.restore(); err != nil {
				log.Warn("iptables rules could not be put back", "error", err)
				continue
			}
			// Taken before our own changes: those are seen as new at the next glance and
			// found right. Taken after, it could hide another program's.
			seen, inspected = current, now
			if n.inPlace() {
				gone, err := n.leaveFormer()
				if err != nil {
					log.Warn("rules of a former agent, in the iptables that it used, could not be removed", "error", err)
				}
				if len(gone) > 0 {
					log.Info("this host has another iptables than a former agent had, whose rules are removed", "chains", gone)
				}
			}
		}
	}
}

// inPlace reports whether what was declared is in force, as far as is known.
func (n *NAT) inPlace() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.set && n.applied
}

// restore applies the declared state, if there is one.
func (n *NAT) restore() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.set {
		return nil
	}
	return n.apply()
}

// moved reports whether an address that is a source has come to this host or gone.
func (n *NAT) moved(log *slog.Logger) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	news, err := n.lookHere()
	if err != nil {
		log.Warn("it is not known which source addresses this host has", "error", err)
	}
	return news
}

func (n *NAT) apply() error {
	_, err := n.lookHere()
	errs, repaired := []error{err}, false
	for _, f := range families {
		have := look(f)
		if chains, err := n.chains(f, have); err != nil {
			errs = append(errs, err)
		} else if chains != nil {
			repaired = repaired || slices.ContainsFunc(chains, func(c chain) bool { return c.name == Postrouting && !have.has(c) })
			errs = append(errs, n.applyChains(f, chains, have))
		} else {
			errs = append(errs, n.clear(f, have))
		}
	}
	if repaired {
		errs = append(errs, n.cfg.forgetStrays(), n.cfg.endPosing())
	}
	if err = errors.Join(errs...); err == nil {
		err = n.endClaims()
	}
	n.applied = err == nil
	return err
}

// applyChains makes chains of a family that are not as they should be. What others lead to comes first, and goes last.
func (n *NAT) applyChains(f iptables.Protocol, chains []chain, have saved) error {
	ipt, err := n.tables(f)
	if err != nil {
		return err
	}
	errs := []error{n.keepPolicy(f, ipt, have)}
	for _, c := range chains {
		if len(c.rules) > 0 && !have.has(c) {
			errs = append(errs, c.ensure(ipt))
		}
	}
	for _, c := range slices.Backward(chains) {
		if len(c.rules) == 0 && !have.lacks(c) {
			errs = append(errs, c.remove(ipt))
		}
	}
	return errors.Join(errs...)
}

// clear removes what we have in a family.
func (n *NAT) clear(f iptables.Protocol, have saved) error {
	ipt, err := n.tables(f)
	if errors.Is(err, errNoIPTables) {
		return nil // then there are no rules of ours either
	}
	if err != nil {
		return err
	}
	// A table of nf_tables that iptables-save does not tell is not there. One of legacy is made by who asks.
	mode, _ := n.mode(f)
	told := have != nil && mode == nfTables
	var errs []error
	for _, c := range slices.Backward(chainsFor(Config{Interface: "none", CIDRs: everything}, nil, nil, f)) {
		if _, table := have[c.table]; !have.lacks(c) && (table || !told) {
			errs = append(errs, c.remove(ipt))
		}
	}
	return errors.Join(errs...)
}

var families = []iptables.Protocol{iptables.ProtocolIPv4, iptables.ProtocolIPv6}

var everything = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

var errNoIPTables = errors.New("iptables is not installed: install the package iptables")

func (n *NAT) tables(f iptables.Protocol) (*iptables.IPTables, error) {
	if ipt := n.open[f]; ipt != nil && n.found[f].there() {
		return ipt, nil
	}
	n.found[f] = find(f) // before what it leads to: who chooses another one in between is seen the next time
	real := realPath(f)
	if ipt := n.open[f]; ipt != nil && real == n.real[f] {
		return ipt, nil
	}
	if !installed(f) {
		return nil, errNoIPTables
	}
	ipt, err := iptables.New(iptables.IPFamily(f), iptables.Timeout(5))
	if err != nil {
		return nil, fmt.Errorf("run iptables: %w", err)
	}
	n.open[f], n.real[f], n.left = ipt, real, false
	delete(n.modes, f)
	return ipt, nil
}
