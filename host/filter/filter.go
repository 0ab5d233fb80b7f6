// Package filter decides what may enter and leave the gateway's interface, gv0, and who
// may send to the ports of other hosts' VTEPs and agents. No rule of another program can
// open what it shuts: it has base chains of its own, where a drop is final whatever others
// accept, before or after. It accepts nothing for others either. What it lets through, the
// host's own firewall, Docker's chains and DOCKER-USER judge as well.
//
// The rules are there twice. One table stays when the agent ends; the other belongs to
// the agent's process, and so outlives `nft flush ruleset`. Whatever goes of the first is
// put back when the kernel tells of it (Run). Where the kernel has no nf_tables, chains in
// iptables' table mangle do it.
package filter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/host/nft"
)

// Config is all that the rules depend on.
type Config struct {
	// Interface is the gateway's, gv0.
	Interface string
	// Bridges are Docker's own bridges on this host; Closed are those of its internal
	// networks, which are among them.
	Bridges, Closed []string
	// Internal are the subnets of our own internal networks.
	Internal []netip.Prefix
	// Hosts are where hosts' own addresses in the overlay lie: those speak to containers.
	Hosts []netip.Prefix
	// Guests are interfaces behind which are others than containers, whom this host forwards
	// for: bridges of virtual machines and the like.
	Guests []string
	// Own are the addresses at which this host has its tunnel, behind NAT also the one that it
	// is reached at; without any, what comes for others is not judged. VXLAN is its port, 0 if it is GRE's, which has none.
	Own   []netip.Addr
	VXLAN uint16
	// VXLANs are the ports of all tunnels that have one; GRE says that there are some of GRE, this host's or others'.
	VXLANs []uint16
	GRE    bool
	// Names are the ports of the resolver: all that internal networks get at their host.
	Names []uint16
	// VTEPs are the addresses at which other hosts have their tunnel and their agent, Ports
	// the ports of both.
	VTEPs []netip.Addr
	Ports []uint16
	// Behind are the own addresses of hosts behind NAT: they send from none of these, and who
	// reaches one without NAT reaches the host.
	Behind []netip.Addr
	// Encrypted is the device that encrypts: VXLAN leaves and comes by it and by nothing else, and nothing else does by
	// it. Secure are the addresses inside. "": this host does not encrypt.
	Encrypted string
	Secure    netip.Prefix
	// Second is the device that stands in for Encrypted while keys change.
	Second string
	// Partly says that only encrypted networks' packets are: what has an address inside leaves and comes by Encrypted and
	// by nothing else, other VXLAN as ever. Cluster are encrypted networks' addresses then, and Ranges those that their
	// containers send nothing to the outside for.
	Partly bool
	// Cluster are the addresses of containers, and those at which hosts speak to them: of a host that encrypts nothing
	// goes to them but by Interface, nor is taken from them by other ways.
	Cluster []netip.Prefix
	// Ranges are those from which the cluster takes its subnets: of a host that encrypts, containers send nothing that is
	// for them to the outside. Others may be there, machines behind a router or hosts to come, and the host speaks to them.
	Ranges []netip.Prefix
	// IPsec says that VXLAN leaves by IPsec and by nothing else, but for what Encrypted has encrypted, and is taken so only.
	IPsec bool
	// Open are subnets whose containers the outside reaches at their own addresses: not who is on a bridge of Docker's.
	Open []netip.Prefix
	// Claimed are addresses of containers and hosts in the cluster that lead to Interface and nowhere else: nobody outside
	// has one.
	Claimed []netip.Prefix
	// NoOptions says that what comes by the port VXLAN is Geneve, and is taken without options only: hosts send none, and
	// know of none what it asks of them.
	NoOptions bool
	// Served are subnets that reach the outside from one address, or not at all.
	Served []nat.Source
	// translates: the tables give what is served its address. It is theirs to know.
	translates bool
	// Elsewhere are those that reach it by another host, or not at all.
	Elsewhere []netip.Prefix
	// Exposed are ports of this host that containers in Inside, whose addresses NAT changes, do not leave by.
	Exposed []uint16
	Inside  []netip.Prefix
	// Gateways are the addresses by which containers know their host.
	Gateways []netip.Addr
	// Beside are the host's addresses on Bridges, each with the length of its subnet's prefix.
	Beside []netip.Prefix
}

func (c Config) equal(d Config) bool {
	return c.Interface == d.Interface && slices.Equal(c.Bridges, d.Bridges) && slices.Equal(c.Closed, d.Closed) &&
		slices.Equal(c.Internal, d.Internal) && slices.Equal(c.Hosts, d.Hosts) && slices.Equal(c.VTEPs, d.VTEPs) && slices.Equal(c.Behind, d.Behind) && slices.Equal(c.Ports, d.Ports) &&
		slices.Equal(c.Guests, d.Guests) && slices.Equal(c.Own, d.Own) && c.VXLAN == d.VXLAN && c.GRE == d.GRE && slices.Equal(c.VXLANs, d.VXLANs) && slices.Equal(c.Names, d.Names) &&
		c.Encrypted == d.Encrypted && c.Second == d.Second && c.Partly == d.Partly && c.Secure == d.Secure && slices.Equal(c.Cluster, d.Cluster) && slices.Equal(c.Ranges, d.Ranges) && c.IPsec == d.IPsec && c.NoOptions == d.NoOptions &&
		slices.Equal(c.Served, d.Served) && slices.Equal(c.Elsewhere, d.Elsewhere) && slices.Equal(c.Open, d.Open) && slices.Equal(c.Claimed, d.Claimed) &&
		slices.Equal(c.Exposed, d.Exposed) && slices.Equal(c.Inside, d.Inside) && slices.Equal(c.Gateways, d.Gateways) && slices.Equal(c.Beside, d.Beside)
}

// sorted is c with its lists in order, each thing once.
func (c Config) sorted() Config {
	c.Bridges, c.Closed, c.Ports = ordered(c.Bridges), ordered(c.Closed), ordered(c.Ports)
	c.Guests, c.VXLANs, c.Names = ordered(c.Guests), ordered(c.VXLANs), ordered(c.Names)
	c.VTEPs, c.Behind, c.Own, c.Gateways = distinct(c.VTEPs), distinct(c.Behind), distinct(c.Own), distinct(c.Gateways)
	c.Internal, c.Hosts, c.Cluster, c.Ranges, c.Open, c.Claimed = outermost(c.Internal), outermost(c.Hosts), outermost(c.Cluster), outermost(c.Ranges), outermost(c.Open), outermost(c.Claimed)
	c.Served = slices.SortedFunc(slices.Values(c.Served), func(a, b nat.Source) int { return a.Subnet.Compare(b.Subnet) })
	c.Beside = slices.Compact(slices.SortedFunc(slices.Values(c.Beside), netip.Prefix.Compare))
	c.Elsewhere, c.Inside, c.Exposed = outermost(c.Elsewhere), outermost(c.Inside), ordered(c.Exposed)
	return c
}

// reached are all addresses at which other hosts are reached.
func (c Config) reached() []netip.Addr { return distinct(slices.Concat(c.VTEPs, c.Behind)) }

func ordered[T string | uint16](all []T) []T {
	all = slices.Clone(all)
	slices.Sort(all)
	return slices.Compact(all)
}

func distinct(all []netip.Addr) []netip.Addr {
	return slices.Compact(slices.SortedFunc(slices.Values(all), netip.Addr.Compare))
}

// outermost are the prefixes that lie in no other one, in order.
func outermost(all []netip.Prefix) (out []netip.Prefix) {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b netip.Prefix) int {
		if c := a.Masked().Addr().Compare(b.Masked().Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	for _, p := range sorted {
		if out == nil || !out[len(out)-1].Overlaps(p) {
			out = append(out, p.Masked())
		}
	}
	return out
}

// backend sets rules in one way.
type backend interface {
	// set makes the rules those of a Config, at once.
	set(Config) error
	// whole says whether the rules are as set left them.
	whole() (bool, error)
	// wait returns when something may have changed.
	wait(context.Context) error
	// remove removes the rules. None there is no error.
	remove() error
	// refused is what its rules of a chain have dropped of which it is told; "": of all chains.
	refused(chain string) ([]Refused, error)
	close()
}

// Filter keeps the rules of one network namespace. Its methods may be called
// concurrently.
type Filter struct {
	mu      sync.Mutex
	with    backend
	cfg     Config
	inPlace bool
	strict  string // Config.Encrypted of the rules that are there
	ipsec   bool   // Config.IPsec
	// failed is why the rules are not what they should be.
	failed error
	told   atomic.Pointer[told]
	log    *slog.Logger
}

// Open finds out how to set rules in the namespace of the calling thread; none is set yet.
func Open(log *slog.Logger) (*Filter, error) {
	tables, err := openTables()
	if err == nil {
		return &Filter{with: tables, log: log}, nil
	}
	old, errOld := openLegacy()
	if errOld != nil {
		return nil, fmt.Errorf("this kernel takes no packet filter rules: by nf_tables: %w; by iptables: %w", err, errOld)
	}
	log.Info("this kernel has no nf_tables: what containers may reach is decided in iptables' table mangle", "error", err)
	return &Filter{with: old, log: log}, nil
}

// CanBeStrict is why nothing can be kept from passing in the clear in the namespace of the calling thread; nil: it can.
func CanBeStrict() error {
	t, err := openTables()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoTables, err)
	}
	t.close()
	return nil
}

// Set declares the whole state, and has it in place when it returns nil. To declare the
// same again costs nothing.
func (f *Filter) Set(cfg Config) error {
	if cfg.Interface == "" {
		return errors.New("filter: no interface")
	}
	cfg = cfg.sorted()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil && f.inPlace && f.cfg.equal(cfg) {
		return nil
	}
	f.cfg = cfg
	return f.apply()
}

// apply makes the rules those of cfg; the lock is held.
func (f *Filter) apply() error {
	defer f.tell()
	err := f.with.set(f.cfg)
	if err != nil {
		f.strict, f.ipsec = "", false
		err = fmt.Errorf("set the rules of what may enter and leave %s: %w", f.cfg.Interface, err)
	} else {
		f.inPlace, f.strict, f.ipsec = true, f.cfg.Encrypted, f.cfg.IPsec
	}
	f.failed = err
	return err
}

// told is what InPlace and Trouble say: others wait for none of the programs of iptables, which wait for
// their lock.
type told struct {
	inPlace bool
	strict  string
	ipsec   bool
	failed  error
}

// tell is called with the lock held, when something may have changed.
func (f *Filter) tell() { f.told.Store(&told{f.inPlace, f.strict, f.ipsec, f.failed}) }

func (f *Filter) last() told {
	if t := f.told.Load(); t != nil {
		return *t
	}
	return told{}
}

// InPlace says whether there are rules, be they of the last Config or of one before. It does not block.
func (f *Filter) InPlace() bool {
	return f.last().inPlace
}

// Strict says whether the rules that are there keep VXLAN to the device that encrypts. It does not block.
func (f *Filter) Strict(device string) bool {
	last := f.last()
	return device != "" && last.inPlace && last.strict == device
}

// ByIPsec says whether the rules that are there keep VXLAN to IPsec. It does not block.
func (f *Filter) ByIPsec() bool {
	last := f.last()
	return last.inPlace && last.ipsec
}

// Trouble is why the rules are not what they should be; nil: they are. It does not block.
func (f *Filter) Trouble() error {
	return f.last().failed
}

// retry is the pause after rules could not be put back.
const retry = 500 * time.Millisecond

// Run puts the rules back when another program has removed or changed them, as soon as
// the kernel tells of it, until ctx is done, and returns its error.
func (f *Filter) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := f.with.wait(ctx)
		if err == nil {
			err = f.restore()
		}
		if err != nil && ctx.Err() == nil {
			f.log.Warn("what may enter and leave the overlay", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(retry):
			}
		}
	}
	return ctx.Err()
}

func (f *Filter) restore() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.tell()
	if f.cfg.Interface == "" {
		return nil
	}
	whole, err := f.with.whole()
	switch {
	case err != nil:
		f.failed, f.strict, f.ipsec = fmt.Errorf("look at the rules of what may enter and leave %s: %w", f.cfg.Interface, err), "", false
		return f.failed
	case whole && f.failed == nil:
		return nil
	case !whole && f.inPlace:
		f.log.Warn("another program removed rules of what may enter and leave the overlay: they are put back")
	}
	return f.apply()
}

// Refused is what a rule that is about encryption, an egress, exposed ports or claimed addresses has dropped, since it came to be.
type Refused = nft.Count

// Refused are those that have dropped anything.
func (f *Filter) Refused() ([]Refused, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.with.refused("")
}

// RefusedBy are those of one chain.
func (f *Filter) RefusedBy(chain string) ([]Refused, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.with.refused(chain)
}

// Remove removes the rules. None there is no error.
func (f *Filter) Remove() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cfg, f.inPlace, f.strict, f.ipsec, f.failed = Config{}, false, "", false, nil
	f.tell()
	return f.with.remove()
}

// Close lets go of the sockets; the rules that are to outlive the agent stay. Run has
// returned.
func (f *Filter) Close() { f.with.close() }

// tables is the backend of nftables.
type tables struct {
	conn, owner *nft.Conn // owner's table goes with it
	watch       *nft.Watch
	owned       bool // this kernel has tables with owners
	twice       bool // what cfg wants is in owner's table as well
	fib         bool // this kernel has the expression fib
	translates  bool // and NAT for these tables
	cfg         Config
	made        time.Time // when they were made anew
	handles     []uint64  // of the rules as set left them; nil: they are to be made anew
	generation  uint32    // of the namespace's rules when they were seen to be so; 0: they were not
	before      []Refused // by rules that were replaced
}

// toldOf reports whether it is a chain of which it is told what they have dropped: what somebody looks for, or forges.
func toldOf(chain string) bool {
	return strings.HasPrefix(chain, "encrypted-") || strings.HasPrefix(chain, "ipsec-") || chain == Served || chain == elsewhere || chain == Shadow || chain == ClaimedIn || chain == ClaimedForward || chain == Posing
}

// counted is what the rules of a table have dropped, of which it is told, or those of one chain of it.
func (t *tables) counted(name, chain string) (list []Refused, err error) {
	all, err := t.conn.Counts(nft.Table{Name: name, Family: nft.Inet}, chain)
	for _, c := range all {
		if toldOf(c.Chain) && c.Packets > 0 {
			list = append(list, c)
		}
	}
	return list, err
}

// refused is what they have dropped in all: a packet is dropped by either table.
func (t *tables) refused(chain string) ([]Refused, error) {
	stays, err := t.counted(lasting, chain)
	mine, errMine := t.counted(ours, chain)
	before := slices.DeleteFunc(slices.Clone(t.before), func(r Refused) bool { return chain != "" && r.Chain != chain })
	return sum(before, stays, mine), errors.Join(err, errMine)
}

// sum adds what rules of one chain and comment have dropped.
func sum(lists ...[]Refused) (all []Refused) {
	for _, c := range slices.Concat(lists...) {
		i := slices.IndexFunc(all, func(o Refused) bool { return o.Chain == c.Chain && o.Comment == c.Comment })
		if i < 0 {
			all = append(all, c)
			continue
		}
		all[i].Packets, all[i].Bytes = all[i].Packets+c.Packets, all[i].Bytes+c.Bytes
	}
	return all
}

// Names of the tables.
const (
	lasting = "grapevine"
	ours    = "grapevine-agent"
)

func openTables() (t *tables, err error) {
	t = &tables{owned: true}
	if t.conn, err = nft.Dial(); err != nil {
		return nil, err
	}
	if t.owner, err = nft.Dial(); err != nil {
		t.conn.Close()
		return nil, err
	}
	if t.watch, err = nft.NewWatch(); err != nil {
		t.conn.Close()
		t.owner.Close()
		return nil, err
	}
	// Whether all that the rules need is there, tried under another name.
	for _, t.fib = range []bool{true, false} {
		probe := table("grapevine-probe", Config{Interface: "none"}, t.fib)
		if err = t.conn.Do(append(probe.Anew(), probe.Remove()...)); err == nil {
			t.translates = t.canTranslate()
			return t, nil
		}
	}
	t.close()
	return nil, err
}

// own makes owner's table. Without it, before Linux 5.12 or while the agent before this
// one has not quite ended, the other one does all, but not past a flush.
func (t *tables) own() {
	mine := table(ours, t.cfg, t.fib)
	mine.Owned = true
	had, _ := t.counted(ours, "")
	err := t.owner.Do(mine.Anew())
	if err == nil {
		t.before = sum(t.before, had)
	}
	t.twice, t.owned = err == nil, !unsupported(err)
}

func (t *tables) set(cfg Config) error {
	cfg.translates = t.translates
	if t.change(cfg) {
		return nil
	}
	t.cfg, t.twice, t.handles, t.made = cfg, false, nil, time.Now()
	if t.owned {
		t.own()
	}
	stays := table(lasting, cfg, t.fib)
	had, _ := t.counted(lasting, "")
	if err := t.conn.Do(stays.Anew()); err != nil {
		return fmt.Errorf("make nftables table %s: %w", lasting, err)
	}
	t.before = sum(t.before, had)
	if err := t.booted(); err != nil {
		return err
	}
	var err error
	t.handles, err = t.conn.Handles(stays)
	return err
}

// atMost is for how long values of sets are changed and not all of them made anew: of who empties a set only the kernel
// tells, and not which.
const atMost = 5 * time.Minute

// change makes the tables those of cfg where that is a matter of some values of sets, as with each container that comes
// and goes. The rules stay, and what they have counted. false: they have to be made anew; nothing may be wrong with that.
func (t *tables) change(cfg Config) bool {
	if len(t.handles) == 0 || t.owned && !t.twice || time.Since(t.made) > atMost {
		return false
	}
	todo := []struct {
		name  string
		owned bool
		conn  *nft.Conn
	}{{lasting, false, t.conn}, {ours, true, t.owner}}
	if !t.twice {
		todo = todo[:1]
	}
	from, to := table("", t.cfg, t.fib), table("", cfg, t.fib)
	for _, at := range todo {
		from.Name, to.Name = at.name, at.name
		from.Owned, to.Owned = at.owned, at.owned
		batch, ok := from.Change(to)
		if !ok {
			return false
		}
		if len(batch) > 0 && at.conn.Do(batch) != nil {
			return false
		}
	}
	t.cfg = cfg
	return true
}

func (t *tables) whole() (bool, error) {
	if t.owned && !t.twice {
		t.own()
	}
	now, err := t.conn.Generation()
	if err != nil {
		return false, err
	}
	if len(t.handles) > 0 && now == t.generation {
		return true, nil // nobody has changed any rule of the host since
	}
	handles, err := t.conn.Handles(nft.Table{Name: lasting, Family: nft.Inet})
	whole := err == nil && len(handles) > 0 && slices.Equal(handles, t.handles)
	if t.generation = now; !whole {
		t.handles, t.generation = nil, 0
	}
	return whole, err
}

// wait looks again after a while, though the kernel tells of every change, or that it could not; and soon while the
// agent before this one has not ended, of whose table that goes nobody tells.
func (t *tables) wait(ctx context.Context) error {
	most := 5 * time.Second
	if t.owned && !t.twice {
		most = time.Second
	}
	return t.watch.Wait(ctx, most)
}

func (t *tables) remove() error {
	errs := []error{t.booted()}
	for _, name := range []string{lasting, ours} {
		at, gone := t.conn, table(name, Config{}, t.fib)
		if name == ours {
			at = t.owner
		}
		if err := at.Do(gone.Remove()); err != nil && !isGone(err) {
			errs = append(errs, fmt.Errorf("remove nftables table %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (t *tables) close() {
	t.watch.Close()
	t.owner.Close()
	t.conn.Close()
}

// Purge removes what an agent that is gone has left, and returns what that was.
func Purge() (gone []string, err error) {
	f, err := Open(slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil // without packet filters there are none of ours
	}
	defer f.Close()
	switch with := f.with.(type) {
	case *tables:
		if handles, err := with.conn.Handles(table(lasting, Config{}, with.fib)); err != nil || len(handles) > 0 {
			gone = append(gone, "nftables table inet "+lasting)
		}
	case *legacy:
		for _, command := range with.commands {
			if have, err := mangle(command); err == nil && strings.Contains(have, "GRAPEVINE-") {
				gone = append(gone, command+" chains GRAPEVINE-* of mangle")
			}
		}
	}
	return gone, f.Remove()
}
