// Package ike has this host's strongSwan exchange keys (IKEv2) with those of the other hosts, by the public keys in their
// signed records: who is a host of the cluster is a peer, and nobody else. That nothing of containers passes without, the
// kernel's rules see to (package overlay/guard), whatever becomes of the daemon.
package ike

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/strongswan"
)

// Source is where snapshots come from (package replica). The channel is closed at the change after the call; it is
// taken before the snapshot.
type Source interface {
	Snapshot() *cluster.Snapshot
	Watch() <-chan struct{}
}

// Config is what a Keeper works with.
type Config struct {
	Self cluster.NodeID
	Key  *ecdsa.PrivateKey
	Here netip.Addr // this host's own address in the underlay
	Port uint16     // VXLAN's
	Note strongswan.Note
	Log  *slog.Logger
}

// Keeper tells the daemon who the peers are.
type Keeper struct {
	cfg    Config
	public []byte
	source Source

	mu     sync.Mutex
	failed error
	peers  int
	keyed  int
	// refused are the peers that the daemon does not take, and why.
	refused map[cluster.NodeID]error
}

// Open reads the key that this host's strongSwan has, if it is to be told of the others. If it was, and is not to be any more, that
// ends, and there is no Keeper.
func Open(cfg Config, wanted bool, load func() (*ecdsa.PrivateKey, error)) (k *Keeper, err error) {
	if !wanted {
		if gone, err := Purge(context.Background(), cfg.Note); err != nil || len(gone) > 0 {
			cfg.Log.Info("strongSwan is told of no host any more", "removed", gone, "err", err)
		}
		return k, nil
	}
	if cfg.Key, err = load(); err != nil {
		return nil, err
	}
	return New(cfg)
}

// New tells nobody anything yet.
func New(cfg Config) (*Keeper, error) {
	public, err := strongswan.Public(cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("make a public key for IPsec: %w", err)
	}
	return &Keeper{cfg: cfg, public: public, failed: errors.New("it was not spoken to yet")}, nil
}

// Follow says where the other hosts' records are. It comes before the methods that follow. A nil Keeper follows nobody.
func (k *Keeper) Follow(source Source) {
	if k != nil {
		k.source = source
	}
}

// Public is what this host's record has for the others; nil Keeper: nothing.
func (k *Keeper) Public() []byte {
	if k == nil {
		return nil
	}
	return k.public
}

// Peers are the other hosts with a key, by their own signed records; without are those that have none. It is pure. One that
// says that another's key is its own gains nothing: it cannot sign with that.
func Peers(snap *cluster.Snapshot, self cluster.NodeID, here netip.Addr) (list []strongswan.Peer, without []string) {
	here = here.Unmap().WithZone("")
	for n := range cluster.All[cluster.Node](snap) {
		there := n.Tunnel().Unmap()
		if n.ID == self || !there.IsValid() {
			continue
		}
		if strongswan.CheckPublic(n.IPsec) != nil || there.Is4() != here.Is4() {
			without = append(without, cmp.Or(n.Name, string(n.ID)))
			continue
		}
		list = append(list, strongswan.Peer{Name: string(n.ID), Here: here, There: there, Key: n.IPsec})
	}
	slices.SortFunc(list, func(a, b strongswan.Peer) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(without)
	return list, without
}

// The pauses between two looks: after the cluster has changed, when nothing has been heard, and while keys are exchanged. A daemon that was begun anew
// knows nobody, and says nothing of itself.
const (
	pause = 100 * time.Millisecond
	rest  = 2 * time.Second
	soon  = 500 * time.Millisecond
)

// Run keeps the daemon told until ctx ends. What it was told stays then: packets flow on. A nil Keeper has nothing to do.
func (k *Keeper) Run(ctx context.Context) error {
	if k == nil {
		<-ctx.Done()
		return nil
	}
	var session *strongswan.Session
	defer func() {
		if session != nil {
			session.Close()
		}
	}()
	logged := ""
	for ctx.Err() == nil {
		changed := k.source.Watch()
		wait := rest
		done, err := k.look(ctx, &session)
		if err == nil && !done {
			wait = soon
		}
		if text := k.trouble(err); text != logged && ctx.Err() == nil {
			logged = text
			if text != "" {
				k.cfg.Log.Warn("strongSwan is not told all hosts, trying again; nothing is sent in the clear", "err", text)
			}
		}
		select {
		case <-ctx.Done():
		case <-changed:
			sleep(ctx, pause)
		case <-time.After(wait):
		}
	}
	return nil
}

func (k *Keeper) look(ctx context.Context, session **strongswan.Session) (done bool, err error) {
	list, _ := Peers(k.source.Snapshot(), k.cfg.Self, k.cfg.Here)
	keyed := 0
	if *session == nil {
		*session, err = strongswan.Open(ctx, k.cfg.Note)
	}
	refused := map[cluster.NodeID]error{}
	note := func(list []strongswan.Refusal) {
		for _, r := range list {
			refused[cluster.NodeID(r.Peer)] = r.Err
		}
	}
	var refusals []strongswan.Refusal
	if err == nil {
		refusals, err = (*session).Set(k.cfg.Key, k.cfg.Port, list)
		note(refusals)
	}
	if err == nil {
		_, keyed, refusals, err = (*session).Exchange(list)
		note(refusals)
	}
	if err != nil && *session != nil && !strongswan.Refused(err) {
		(*session).Close() // it may be another daemon by now
		*session = nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.failed, k.peers, k.keyed, k.refused = err, len(list), keyed, refused
	return keyed+len(refused) >= len(list), err
}

// trouble is what is to be logged; "": nothing.
func (k *Keeper) trouble(err error) string {
	if err != nil {
		return err.Error()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	ids := slices.Sorted(maps.Keys(k.refused))
	if len(ids) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d are refused, the first of them is %s: %v", len(ids), k.peers, ids[0], k.refused[ids[0]])
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Problems are for status.
func (k *Keeper) Problems(snap *cluster.Snapshot) (list []api.Problem) {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	failed, refused := k.failed, k.refused
	k.mu.Unlock()
	if failed != nil {
		list = append(list, api.Problem{
			Code: api.IPsecMissing, What: "this host's strongSwan is to have IPsec with the other hosts (GRAPEVINE_IPSEC=strongswan): " + failed.Error(),
			Do: "start it, with its plugin vici (Debian: charon-systemd, `systemctl start strongswan`); the agent goes on trying, and nothing is sent in the clear meanwhile",
		})
	}
	if len(refused) > 0 {
		var names []string
		var first error
		for n := range cluster.All[cluster.Node](snap) {
			if err := refused[n.ID]; err != nil {
				names = append(names, cmp.Or(n.Name, string(n.ID)))
				first = cmp.Or(first, err)
			}
		}
		slices.Sort(names)
		if len(names) > 0 {
			list = append(list, api.Problem{
				Code: api.IPsecMissing, What: "strongSwan here does not take what it is told of " + words.SomeHosts(names, len(names)) + ", and nothing passes between containers here and there: " + first.Error(),
				Do: "see what strongSwan says (`journalctl -u strongswan`); the agent tells it again after a while",
			})
		}
	}
	told, without := Peers(snap, k.cfg.Self, k.cfg.Here)
	if len(without) > 0 {
		list = append(list, api.Problem{
			Code: api.IPsecMissing, What: words.SomeHosts(without, len(told)+len(without)) + " give no key for IPsec, or have an address of another family: strongSwan here does not know them",
			Do: "set GRAPEVINE_IPSEC=strongswan on every host",
		})
	}
	return list
}

// State is for people; "": the daemon was not told.
func (k *Keeper) State() string {
	if k == nil {
		return ""
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed != nil {
		return ""
	}
	return fmt.Sprintf("strongSwan has exchanged keys with %d of %s", k.keyed, words.Plural(k.peers, "other host"))
}

// Purge takes from this host's strongSwan what agents have told it, and returns what that was. Where note has nothing they have
// told it nothing, and it is not spoken to.
func Purge(ctx context.Context, note strongswan.Note) ([]string, error) {
	return strongswan.Purge(ctx, note)
}
