package secure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/wireguard"
)

const (
	// alive is how often peers are sent something that are to be heard before they are sent to.
	alive = 5 * time.Second
	// behindNAT is how often all are sent something by a host that others know by another address than its own: what is before it forgets
	// it after half a minute, and then it would be called in vain until it sends something.
	behindNAT = 25 * time.Second
	// flight is how long a packet may take that was sent before its sender went on.
	flight = time.Second
	// answerWithin is how long a change of the keys is waited for.
	answerWithin = 50 * time.Second
)

// begin takes up where an agent before was, as the record of this host says.
func (k *Keeper) begin(snap *cluster.Snapshot) {
	k.resume.Do(func() {
		was, _ := cluster.Get[cluster.Node](snap, string(k.cfg.Self))
		h := held{turn: max(start, was.Turn.At), first: k.cfg.Key}
		if k.cfg.Keys != nil && (h.step() != steady || k.cfg.Keys.HasSecond()) {
			key, err := k.cfg.Keys.Second()
			if err != nil {
				k.cfg.Log.Warn("the key that stands in while WireGuard's keys change cannot be read", "err", err)
			}
			h.second, h.two = key, err == nil
		}
		k.now = h
		k.mu.Lock()
		k.told = h
		k.mu.Unlock()
	})
}

// heardOf are the hosts heard with the keys that are wanted.
func heardOf(have, want wireguard.State) map[cluster.NodeID]bool {
	heard := map[cluster.NodeID]bool{}
	if have.Private != want.Private.Clamped() {
		return heard
	}
	spoke := map[wireguard.Key]bool{}
	for _, p := range have.Peers {
		spoke[p.Key] = !p.Handshake.IsZero()
	}
	for _, p := range want.Peers {
		inside := p.Inside.Addr().As16()
		heard[cluster.NodeID(fmt.Sprintf("%x", inside[8:]))] = spoke[p.Key]
	}
	return heard
}

func keepAlive(peers []wireguard.Peer, each time.Duration) {
	for i := range peers {
		peers[i].Keepalive = each
	}
}

// standIn is the second device.
func (k *Keeper) standIn() wireguard.Device {
	d := k.device
	d.Name, d.Metric = link.WireGuard2, wireguard.Behind
	if step := k.now.step(); step == moved || step == renewed {
		d.Metric = wireguard.Before
	}
	return d
}

// ensureSecond has the second device as it is to be, or gone. ensuring is held.
func (k *Keeper) ensureSecond(ctx context.Context, snap *cluster.Snapshot) error {
	if !k.now.two {
		k.failed2 = nil
		if _, err := link.Get(link.WireGuard2); errors.Is(err, link.ErrNotFound) {
			return nil
		}
		_, err := k.standIn().Drop()
		return err
	}
	want := wireguard.State{Private: k.now.second, Port: k.cfg.Second, Peers: Seconds(snap, k.cfg.Self, k.now.second.Public())}
	keepAlive(want.Peers, alive)
	_, err := k.set(ctx, 1, k.standIn(), want)
	if errors.Is(err, unix.EADDRINUSE) {
		err = taken(err, k.cfg.Second, "GRAPEVINE_WIREGUARD_PORT, two less, to another port on this host")
	}
	if err != nil {
		err = fmt.Errorf("the device that stands in while keys change, by UDP port %d: %w", k.cfg.Second, err)
		if k.failed2 == nil || k.failed2.Error() != err.Error() {
			k.cfg.Log.Warn("change WireGuard's keys; trying again", "err", err)
		}
	}
	k.failed2 = err
	return err
}

// wait notes what a change of the keys waits for.
func (k *Keeper) wait(what string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waits = what
	k.stall.note(k.now.turn, what, k.failed2 != nil, time.Now())
}

// advance takes the next step in changing keys, if it is time, and reports whether there is one to wait for. It goes by what was known
// when the devices were looked at: by a key that came since nobody was heard yet, and what is sent would wait for a session.
func (k *Keeper) advance(ctx context.Context) (more bool) {
	k.ensuring.Lock()
	defer k.ensuring.Unlock()
	if k.cfg.Keys == nil {
		return false
	}
	if k.looked == nil {
		return true
	}
	others, older := turners(k.looked, k.cfg.Self)
	k.mu.Lock()
	ordered, fresh := k.order, k.fresh
	k.fresh = k.fresh && len(others) == 0
	k.mu.Unlock()
	turn, waits := next(k.now.turn, fresh, ordered, others, k.heard)
	if len(older) > 0 && k.now.turn%steps == begun && turn != k.now.turn { // a host that came, or went back to an older agent, has no second device
		turn, waits = k.now.turn, namesOf(older)
	}
	if k.now.step() == steady && k.now.two && turn == k.now.turn {
		if waits = behind(turn, others); len(waits) == 0 {
			if k.landed() {
				k.end()
			}
			return true
		}
	}
	if turn == k.now.turn || k.now.step() == moved && !k.landed() {
		if k.now.step() == steady && !k.now.two {
			k.wait("")
			return false
		}
		if k.now.step() != moved || len(waits) > 0 {
			k.since2 = time.Time{}
		}
		k.wait(k.whom(waits))
		return true
	}
	k.since2 = time.Time{}
	if err := k.step(ctx, turn); err != nil {
		k.cfg.Log.Warn("change WireGuard's keys; trying again", "err", err)
		k.wait("this host: " + err.Error())
	}
	return true
}

func (k *Keeper) whom(waits []string) string {
	if k.failed2 != nil {
		return "this host: " + k.failed2.Error()
	}
	if len(waits) == 0 {
		return "what is under way"
	}
	text := some(waits)
	if s := k.now.step(); s == begun {
		text += fmt.Sprintf(" (its agent, or UDP port %d between there and here)", k.cfg.Second)
	}
	return text
}

// landed reports whether what was under way when all others had gone on has arrived.
func (k *Keeper) landed() bool {
	if k.since2.IsZero() {
		k.since2 = time.Now()
	}
	return time.Since(k.since2) >= flight
}

// step takes the next step; this host's record says so when all is in place. ensuring is held.
func (k *Keeper) step(ctx context.Context, turn uint64) error {
	was := k.now
	switch turn % steps {
	case begun:
		key, err := k.cfg.Keys.Second()
		if err != nil {
			return err
		}
		k.now.second, k.now.two = key, true
	case renewed:
		key, err := k.cfg.Keys.Renew()
		if err != nil {
			return err
		}
		k.now.first = key
		if _, err := k.device.Drop(); err != nil { // nobody sends by it, and its peers are to be heard anew
			return err
		}
	}
	k.now.turn = turn
	if _, err := k.ensure(ctx); err != nil {
		k.now.turn = was.turn
		return err
	}
	k.cfg.Log.Info("WireGuard's keys are being changed", "step", [steps]string{"steady", "begun", "moved", "renewed"}[k.now.step()], "turn", turn)
	return k.tell()
}

// end takes the second device away.
func (k *Keeper) end() {
	was := k.now
	k.now.two, k.now.second = false, wireguard.Key{}
	if _, err := k.standIn().Drop(); err != nil {
		k.now = was
		k.wait("this host: " + err.Error())
		return
	}
	k.said[1], k.heard[1], k.since2 = nil, nil, time.Time{}
	err := errors.Join(k.cfg.Keys.Drop(), k.tell())
	if err != nil {
		k.cfg.Log.Warn("end the change of WireGuard's keys", "err", err)
	}
	k.cfg.Log.Info("WireGuard's keys are changed")
}

// tell has this host's record say what it has now.
func (k *Keeper) tell() error {
	k.mu.Lock()
	k.told = k.now
	if k.now.step() != steady {
		k.order = false
	}
	k.mu.Unlock()
	return k.cfg.Tell()
}

// Change changes the keys of all hosts, and returns when it is done, or says whom it waits for.
func (k *Keeper) Change(ctx context.Context) (api.Done, error) {
	refuse := func(text string) (api.Done, error) {
		return api.Done{}, &api.Error{Status: http.StatusConflict, Message: "change WireGuard's keys: " + text}
	}
	if k == nil || !k.Wanted() {
		return refuse("nothing is encrypted, so no host uses its key: make a network with -o encrypted first, or leave the keys as they are")
	}
	others, older := turners(k.source.Snapshot(), k.cfg.Self)
	if len(older) > 0 {
		return refuse(some(namesOf(older)) + " cannot: an agent there is older than that: upgrade it first; nothing was changed")
	}
	k.begin(k.source.Snapshot())
	k.mu.Lock()
	goal := k.told.turn - uint64(k.told.step()) + steps
	k.order = k.order || k.told.step() == steady
	k.mu.Unlock()
	k.look()
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	for {
		k.mu.Lock()
		done, waits := k.told.turn >= goal && !k.told.two, k.waits
		k.mu.Unlock()
		if done {
			return api.Done{Text: fmt.Sprintf("All hosts (%d) have new WireGuard keys; nothing else changed", len(others)+1)}, nil
		}
		if ctx.Err() != nil {
			return refuse(strings.TrimSpace("it has begun, and waits for " + cmp.Or(waits, "this host itself") + "; it goes on by itself when that is mended, and what containers send is encrypted and arrives meanwhile; `grapevine status` says how far it is"))
		}
		sleep(ctx, pause)
	}
}
