package plane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/overlay"
	"github.com/grapevine-net/grapevine/overlay/secure"
)

// secureTunnel is the tunnel of a host that encrypts: there is none but with the rules that keep VXLAN in the clear
// from leaving and from being taken. That the device is there is no condition: without it nothing leaves.
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
	if !t.plane.guard.Strict() {
		err = fmt.Errorf("nothing goes to other hosts, since nothing would keep it from going in the clear: %w", cmp.Or(err, errNotStrict))
		return "", errors.Join(err, t.shut(ctx))
	}
	_ = t.plane.cfg.Secure.Ensure(ctx) // it says by itself what is wrong
	return t.Tunnel.Ensure(ctx)
}

var errNotStrict = errors.New("the rules of nftables that do are not there")

// shut takes away a tunnel of before, with all that it takes in the clear.
func (t secureTunnel) shut(ctx context.Context) error {
	if t.plane.tunnel != nil {
		return t.plane.tunnel.Remove(ctx)
	}
	state, err := t.plane.Bridge.State(ctx)
	if _, there := state.Ports[overlay.TunnelPort]; err != nil || !there {
		return err
	}
	_, err = t.plane.Bridge.SetPorts(ctx, nil, []string{overlay.TunnelPort})
	return err
}

// Devices are the tunnel's, as Missing is.
func (t secureTunnel) Devices() []string { return t.Tunnel.(damageable).Devices() }

// Missing says what Ensure would set right.
func (t secureTunnel) Missing(ctx context.Context) []string {
	return t.Tunnel.(damageable).Missing(ctx)
}

// Encryption is how what goes to other hosts is encrypted, as api.Status has it; "": it is not.
func (p *Plane) Encryption() string {
	if p.cfg.Secure == nil {
		return ""
	}
	if !p.guard.Strict() {
		return "all, and the rules that keep VXLAN in the clear from passing are not there: nothing is sent to other hosts"
	}
	return p.cfg.Secure.State()
}

// EncryptionProblems are what is wrong with it, and the hosts to which there is no way for its sake.
func (p *Plane) EncryptionProblems(snap *cluster.Snapshot) (list []api.Problem) {
	if p.cfg.Secure != nil {
		list = p.cfg.Secure.Problems()
	}
	return slices.Concat(list, secure.Unlike(snap, p.cfg.Self, p.cfg.Secure != nil))
}

// beginSecure takes away what an agent has left that did not encrypt: programs of a fast path that sends and takes VXLAN
// beside the rules that are to keep it encrypted. What one has left that did is taken away by endSecure.
func (p *Plane) beginSecure() {
	if p.cfg.Secure == nil {
		return
	}
	if _, err := link.Get(link.WireGuard); !errors.Is(err, link.ErrNotFound) {
		return // it was told the same
	}
	if err := p.fast.path.Stop(); err != nil && !errors.Is(err, link.ErrNotFound) {
		p.log.Warn("remove the fast path of an agent that did not encrypt", "err", err)
	}
}

// endSecure returns what the overlay is to call when its flows are in place. On a host that does not encrypt any more
// that takes away what did: as long as flows send to addresses inside, the kernel would send that to its router.
func (p *Plane) endSecure(inPlace func(context.Context) error) func(context.Context) error {
	if p.cfg.Secure != nil {
		return inPlace
	}
	ended, said := false, ""
	return func(ctx context.Context) error {
		if inPlace != nil {
			if err := inPlace(ctx); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
		gone, err := secure.Purge(p.cfg.Settings.Run)
		if len(gone) > 0 {
			p.log.Info("nothing is encrypted any more: GRAPEVINE_ENCRYPTION is off", "removed", gone)
		}
		if ended = err == nil; err != nil && err.Error() != said {
			said = err.Error()
			p.log.Warn("remove what has encrypted: GRAPEVINE_ENCRYPTION is off", "err", err)
		}
		return nil
	}
}
