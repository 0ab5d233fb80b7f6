package plane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay"
	"github.com/grapevine-net/grapevine/overlay/fastpath"
	"github.com/grapevine-net/grapevine/overlay/guard"
	"github.com/grapevine-net/grapevine/overlay/secure"
)

// seal is what keeps encrypted networks' packets from the clear, on a host that encrypts those alone.
type seal struct {
	*secure.Keeper // nil: it cannot
	guard          *guard.Guard
	log            *slog.Logger
}

// open reports whether something goes to VTEPs inside WireGuard, beside those outside.
func (s seal) open() bool { return s.Partly() && s.guard.Strict() }

// opened is open once the rules are set, if they can be: for the tunnel, which an agent that begins anew finds as the former
// one has left it. Before it has set rules of its own it knows of none, and would take away the port by which packets come.
func (s seal) opened() bool { return s.Partly() && s.closed() }

// closed reports whether the rules are there that keep what is for the VTEPs inside from leaving in the clear, and what
// came so from being taken for theirs. They are set if they are not, before anything is sent there. That the device is
// there is no condition: without it nothing leaves.
func (s seal) closed() bool {
	if s.Keeper == nil {
		return false
	}
	if !s.guard.Strict() {
		if err := s.guard.Set(); err != nil {
			s.log.Warn("encrypted networks have no way to other hosts", "error", err)
		}
	}
	return s.guard.Strict()
}

// secureTunnel is the tunnel of a host that encrypts all, or leaves that to IPsec: there is none but with the rules that
// keep VXLAN in the clear from leaving and from being taken. That the device is there is no condition: without it nothing
// leaves.
type secureTunnel struct {
	overlay.Tunnel
	plane *Plane
}

// damageable is what overlay asks of a tunnel whose interfaces others may delete or set down.
type damageable interface {
	Devices() []string
	Missing(context.Context) []string
}

// Ensure implements overlay.Tunnel.
func (t secureTunnel) Ensure(ctx context.Context) (string, error) {
	err := t.plane.guard.Set()
	if !strict(t.plane.cfg, t.plane.guard) {
		err = fmt.Errorf("nothing goes to other hosts, since nothing would keep it from going in the clear: %w", cmp.Or(err, errNotStrict))
		return "", errors.Join(err, t.shut(ctx))
	}
	if t.plane.cfg.Secure.All() {
		_ = t.plane.cfg.Secure.Ensure(ctx) // it says by itself what is wrong
	}
	return t.Tunnel.Ensure(ctx)
}

// strict reports whether the rules are there without which there is no tunnel.
func strict(c Config, g *guard.Guard) bool {
	return (!c.Secure.All() || g.Strict()) && (!c.Settings.NeedsIPsec() || g.ByIPsec())
}

var errNotStrict = errors.New("the rules of nftables that do are not there")

// shut takes away a tunnel of before, with all that it takes in the clear.
func (t secureTunnel) shut(ctx context.Context) error {
	if t.plane.tunnel != nil {
		return t.plane.tunnel.Remove(ctx)
	}
	state, err := t.plane.Bridge.State(ctx)
	var there []string
	for _, name := range []string{overlay.TunnelPort, overlay.InsidePort} {
		if _, ok := state.Ports[name]; ok {
			there = append(there, name)
		}
	}
	if err != nil || len(there) == 0 {
		return err
	}
	_, err = t.plane.Bridge.SetPorts(ctx, nil, there)
	return err
}

// Devices are the tunnel's, as Missing is.
func (t secureTunnel) Devices() []string { return t.Tunnel.(damageable).Devices() }

// Missing says what Ensure would set right.
func (t secureTunnel) Missing(ctx context.Context) []string {
	return t.Tunnel.(damageable).Missing(ctx)
}

// Encryption is how what goes to other hosts is encrypted, as api.Status has it; "": nothing is.
func (p *Plane) Encryption() string {
	how := byWireGuard(p.cfg.Secure, p.guard)
	switch {
	case !p.cfg.Settings.NeedsIPsec():
		return how
	case !strict(p.cfg, p.guard):
		return "all, and the rules that keep VXLAN to IPsec are not there: nothing is sent to other hosts"
	case how != "":
		how += "; all else by IPsec, or not at all"
	default:
		how = "all, by IPsec, or not at all"
	}
	if p.cfg.Exchanges != nil {
		if by := p.cfg.Exchanges(); by != "" {
			how += ": " + by
		}
	}
	return how
}

// Encrypted is what doctor says where what goes to other hosts is encrypted; "": it is not.
func Encrypted(how string) string {
	if how == "" {
		return ""
	}
	return "what containers send to those of other hosts: " + how
}

func byWireGuard(k *secure.Keeper, g *guard.Guard) string {
	if k == nil || !k.Wanted() {
		return ""
	}
	if !g.Strict() && !k.All() {
		return "encrypted networks, and the rules that keep their packets from passing in the clear are not there: nothing of that is sent to other hosts"
	}
	if !g.Strict() {
		return "all, and the rules that keep VXLAN in the clear from passing are not there: nothing is sent to other hosts"
	}
	return k.State()
}

// EncryptionOf is Encryption of one network, as api.Network has it, that is encrypted itself or not; "": it goes in the clear.
func EncryptionOf(p *Plane, encrypted bool) string {
	const shut = "the rules that keep its packets from passing in the clear are not there: nothing of it is sent to other hosts"
	k := p.cfg.Secure
	switch byItself := encrypted || k.All(); {
	case byItself && k == nil:
		return fmt.Sprintf("this host has no part in it, since it cannot encrypt: %v", p.cfg.Cannot)
	case byItself && !p.guard.Strict():
		return shut
	case byItself:
		return k.How() + ", or not at all" + k.Ways()
	case !p.cfg.Settings.NeedsIPsec():
		return ""
	case !p.guard.ByIPsec():
		return shut
	}
	return "by IPsec, or not at all"
}

// EncryptionProblems are what is wrong with it, and the hosts to which there is no way for its sake.
func (p *Plane) EncryptionProblems(snap *cluster.Snapshot) (list []api.Problem) {
	if p.cfg.Secure != nil {
		list = p.cfg.Secure.Problems()
	}
	if p.cfg.Settings.NeedsIPsec() && strict(p.cfg, p.guard) { // else the guard says why
		list = append(list, withoutIPsec(p.cfg, snap)...)
	}
	return slices.Concat(list, secure.Unlike(snap, p.cfg.Self, p.cfg.Secure.All()), secure.Without(snap, p.cfg.Self, p.cfg.Cannot))
}

// beginSecure takes away what an agent has left that did not encrypt: programs of a fast path that sends and takes VXLAN
// beside the rules that are to keep it encrypted. What one has left that did is taken away by endSecure.
// The rules come before that: a former agent's may be gone with the device that encrypts, and the switch has its flows yet.
func (p *Plane) beginSecure() {
	if p.cfg.Secure != nil && p.cfg.Secure.Wanted() {
		if err := p.guard.Set(); err != nil {
			p.log.Warn("set the rules that keep what is encrypted from the clear", "err", err)
		}
	}
	if p.cfg.Settings.NeedsIPsec() {
		if err := p.fast.path.Stop(); err != nil && !errors.Is(err, link.ErrNotFound) {
			p.log.Warn("remove the fast path of an agent that may have passed IPsec by", "err", err)
		}
	}
	if !p.cfg.Secure.All() {
		return
	}
	was, _ := cluster.Get[cluster.Node](p.cfg.Source.Snapshot(), string(p.cfg.Self))
	if _, err := link.Get(link.WireGuard); was.Encrypts() && !errors.Is(err, link.ErrNotFound) {
		return // it was told the same
	}
	if err := p.fast.path.Stop(); err != nil && !errors.Is(err, link.ErrNotFound) {
		p.log.Warn("remove the fast path of an agent that did not encrypt", "err", err)
	}
}

// endSecure returns what the overlay is to call when its flows are in place. On a host that does not encrypt any more
// that takes away what did: as long as flows send to addresses inside, the kernel would send that to its router.
func (p *Plane) endSecure(inPlace func(context.Context) error) func(context.Context) error {
	if p.cfg.Secure.All() {
		return inPlace
	}
	ended, said := false, ""
	return func(ctx context.Context) error {
		if inPlace != nil {
			if err := inPlace(ctx); err != nil {
				return err
			}
		}
		if ended || p.cfg.Secure != nil && p.cfg.Secure.Wanted() {
			ended = true // what is wanted now, the next agent may have to take away
			return nil
		}
		gone, err := secure.Purge(p.cfg.Settings.Run)
		if len(gone) > 0 {
			p.log.Info("nothing is encrypted any more", "removed", gone)
		}
		if ended = err == nil; err != nil && err.Error() != said {
			said = err.Error()
			p.log.Warn("remove what has encrypted", "err", err)
		}
		return nil
	}
}

// throughOf is how packets go by WireGuard without VXLAN.
func throughOf(p *Plane) secure.Through {
	all := p.cfg.Secure.All()
	return secure.Through{
		Path: fastpath.Inside{Path: p.fast.path}, Port: p.cfg.Settings.VXLANPort, Tell: p.cfg.Tell, CaughtUp: p.heard,
		Ranges: func(snap *cluster.Snapshot) (list []secure.Range) {
			for _, r := range overlay.SecureRanges(snap, all) {
				list = append(list, secure.Range(r))
			}
			return list
		},
	}
}
