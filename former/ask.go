package former

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/host/store"
)

// Method is how a host asks another one what it has heard.
const Method = "former.heard" // question -> answer

// question asks for what the host goes by of what writers wrote, and to wait for a moment if that is less than Marks.
type question struct {
	Marks marks `cbor:"1,keyasint"`
	// Of is another host, which the one that is asked asks in turn: the asker does not reach it. "": none.
	Of cluster.NodeID `cbor:"2,keyasint,omitempty"`
}

// answer says up to which write of each writer that was asked about the host has heard all. Its switch goes by it, and it does not
// forget it.
type answer struct {
	Marks marks `cbor:"1,keyasint"`
	// Of is the question's: who does not know it would answer for itself.
	Of cluster.NodeID `cbor:"2,keyasint,omitempty"`
}

const (
	parallel = 128                    // hosts that are asked at once; who has not answered after a moment does not count any more
	moment   = 250 * time.Millisecond // after which a host is one that does not answer, until it does
	patience = 3 * time.Second        // for one answer
	holding  = time.Second            // an answer waits for what the host has not heard yet
	again    = 250 * time.Millisecond // after a try that said less than is needed, or failed
	slow     = time.Second            // the same, from the tenth on
	turns    = moment                 // between two hosts that are asked while nothing waits for it
	idle     = 30 * time.Second       // after a try that failed, then
	grace    = 5 * time.Second        // an agent that does not know the question, but answers, has heard what was written so long ago
	together = 10 * time.Millisecond  // answers that come within make one pass
	saving   = time.Second            // between two times that answers are written to the disk
	tidying  = time.Minute            // how often hosts are asked for nobody's sake, if more than this is remembered:
	much     = 1024
)

// Answer answers another host.
func (k *Keeper) Answer(ctx context.Context, _ string, body []byte) ([]byte, error) {
	var q question
	if err := cbor.Unmarshal(body, &q); err != nil {
		return nil, fmt.Errorf("malformed question of %d bytes: %w", len(body), err)
	}
	if q.Of != "" && q.Of != k.self {
		return k.relay(ctx, q)
	}
	k.await(ctx, q.Marks)
	snap, err := k.settleFor(ctx, q.Marks)
	if err != nil {
		return nil, err
	}
	return cbor.Marshal(answer{of(snap, q.Marks), q.Of})
}

// relay asks another host for one that does not reach it, and says what that one says.
func (k *Keeper) relay(ctx context.Context, q question) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := k.question(ctx, q.Of, q.Of, q.Marks)
	if err != nil {
		return nil, err
	}
	return cbor.Marshal(answer{m, q.Of})
}

// of are a snapshot's marks of the writers in need.
func of(snap *cluster.Snapshot, need marks) marks {
	out := marks{}
	for by := range need {
		if n := snap.Mark(by); n > 0 {
			out[by] = n
		}
	}
	return out
}

// await returns when the state has what is needed, or after a moment.
func (k *Keeper) await(ctx context.Context, need marks) {
	end := time.After(holding)
	for {
		changed := k.cfg.Watch()
		if of(k.cfg.Snapshot(), need).met(need) {
			return
		}
		select {
		case <-changed:
		case <-end:
			return
		case <-ctx.Done():
			return
		}
	}
}

// settleFor returns a state by which the switch goes, which is on the disk, and which has what is needed, if this host has that.
func (k *Keeper) settleFor(ctx context.Context, need marks) (*cluster.Snapshot, error) {
	if s := k.settled.Load(); s != nil && of(s, need).met(need) {
		return s, nil
	}
	select {
	case k.settle <- struct{}{}:
		defer func() { <-k.settle }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s := k.settled.Load(); s != nil && of(s, need).met(need) {
		return s, nil
	}
	s := k.cfg.Snapshot()
	if err := k.cfg.Placed(ctx, s.Rev()); err != nil {
		return nil, err
	}
	if err := k.cfg.Flush(ctx); err != nil {
		return nil, err
	}
	k.settled.Store(s)
	return s, nil
}

// Run asks hosts what they have heard, while it matters.
func (k *Keeper) Run(ctx context.Context) error {
	go k.tell(ctx)
	saved := make(chan struct{})
	go func() { defer close(saved); k.keepSaving(ctx) }()
	defer func() { <-saved }()
	go k.keepTidy(ctx)
	slots := make(chan struct{}, parallel)
	for {
		host, need, next := k.due(time.Now())
		if host != "" {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			go k.askIn(ctx, slots, host, need)
			continue
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-k.wake:
		case <-timer:
		}
	}
}

// keepTidy asks hosts for nobody's sake where much is remembered, so that it can be forgotten.
func (k *Keeper) keepTidy(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(tidying):
			k.tidy(ctx)
		}
	}
}

func (k *Keeper) tidy(ctx context.Context) {
	snap := k.cfg.Snapshot()
	k.mu.Lock()
	need := marks{}
	if len(k.table.entries) > much {
		for by, counter := range k.table.latest() {
			need[by] = reachable(snap, by, counter)
		}
	}
	var hosts []cluster.NodeID
	for n := range cluster.All[cluster.Node](snap) {
		if n.ID != k.self && !k.heard[n.ID].met(need) {
			hosts = append(hosts, n.ID)
		}
	}
	k.mu.Unlock()
	if len(hosts) == 0 && len(need) > 0 { // all had heard when it was noted
		k.save(true)
	}
	for _, host := range hosts {
		if ctx.Err() == nil {
			k.ask(ctx, host, need)
		}
	}
}

// tell has the switch go by what hosts have said.
func (k *Keeper) tell(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.changed:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(together):
		}
		select { // what came meanwhile is told as well
		case <-k.changed:
		default:
		}
		if err := k.cfg.Pass(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Log.Debug("have the switch go by what other hosts have heard", "err", err)
		}
	}
}

// due is a host that is to be asked now, which is noted as being asked, or when the next one is.
func (k *Keeper) due(now time.Time) (host cluster.NodeID, need marks, next time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, a := range k.asked {
		switch {
		case a.asking:
		case !a.next.After(now):
			a.asking = true
			return id, maps.Clone(a.need), time.Time{}
		case next.IsZero() || a.next.Before(next):
			next = a.next
		}
	}
	return "", nil, next
}

// askIn asks a host, whose place it leaves after a moment: hosts that hang keep no other one waiting.
func (k *Keeper) askIn(ctx context.Context, slots <-chan struct{}, host cluster.NodeID, need marks) {
	leave := sync.OnceFunc(func() { <-slots })
	late := time.AfterFunc(moment, func() {
		leave()
		k.mu.Lock()
		a := k.asked[host]
		first := a != nil && !a.tried
		if first {
			a.tried = true
		}
		k.mu.Unlock()
		if first {
			poke(k.changed)
		}
	})
	k.ask(ctx, host, need)
	late.Stop()
	leave()
}

// ask asks one host once.
func (k *Keeper) ask(ctx context.Context, host cluster.NodeID, need marks) {
	got, err := k.learn(ctx, host, need)
	now := time.Now()
	k.mu.Lock()
	a := k.asked[host]
	if a == nil {
		a = &asked{}
	}
	if unknown(err) {
		// It answers, so what hosts tell each other passes.
		if !a.old.IsZero() && now.Sub(a.old) > grace {
			got, err = a.was, nil
			a.old = time.Time{}
		}
		if a.old.IsZero() {
			a.old, a.was = now, need
		}
	} else {
		a.old = time.Time{}
	}
	first := !a.tried
	a.asking, a.tried, a.err = false, true, err
	a.tries++
	pause := again
	switch {
	case a.quiet:
		pause = idle
	case a.tries >= 10:
		pause = slow
	}
	a.next = now.Add(pause)
	more := false
	if err == nil {
		if k.heard[host] == nil {
			k.heard[host] = marks{}
		}
		if more = k.heard[host].raise(got); more {
			k.unsaved[host] = true
		}
	}
	if k.heard[host].met(a.need) {
		delete(k.asked, host)
	}
	k.mu.Unlock()
	if more {
		poke(k.unsavedYet)
	}
	if more || first {
		poke(k.changed)
	}
	poke(k.wake)
}

// unknown reports whether an agent of a version before this one has answered.
func unknown(err error) bool {
	var remote *gossip.RemoteError
	return errors.As(err, &remote) && strings.HasPrefix(remote.Text, "unknown method")
}

// learn finds out what a host has heard: from itself, or, if it is alive and does not answer this host, by way of another one, since
// gossip passes by others as well. Which one that was is remembered.
func (k *Keeper) learn(ctx context.Context, host cluster.NodeID, need marks) (marks, error) {
	ask := func(at cluster.NodeID) (marks, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return k.question(ctx, at, host, need)
	}
	k.mu.Lock()
	by := k.by[host]
	k.mu.Unlock()
	if by != "" {
		if got, err := ask(by); err == nil {
			return got, nil
		}
		k.noteBy(host, "")
	}
	got, err := ask(host)
	if err == nil || answered(err) {
		return got, err
	}
	for _, by := range k.relays(host) {
		if got, failed := ask(by); failed == nil {
			k.noteBy(host, by)
			return got, nil
		}
	}
	return nil, err
}

// answered reports whether a host has answered that it fails.
func answered(err error) bool {
	var remote *gossip.RemoteError
	return errors.As(err, &remote)
}

// relays are other hosts that may reach one that is alive; none, if it is not.
func (k *Keeper) relays(host cluster.NodeID) (list []cluster.NodeID) {
	alive := k.cfg.Alive()
	if !slices.Contains(alive, string(host)) {
		return nil
	}
	const most = 2
	for _, i := range rand.Perm(len(alive)) {
		if id := cluster.NodeID(alive[i]); id != host && len(list) < most {
			list = append(list, id)
		}
	}
	return list
}

// noteBy notes by way of whom a host answers; "": nobody.
func (k *Keeper) noteBy(host, by cluster.NodeID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by[host] = by; by == "" {
		delete(k.by, host)
	}
}

// question asks a host for what it has heard, or for what another one has.
func (k *Keeper) question(ctx context.Context, at, host cluster.NodeID, need marks) (marks, error) {
	q := question{Marks: need}
	if at != host {
		q.Of = host
	}
	body, err := cbor.Marshal(q)
	if err != nil {
		return nil, err
	}
	b, err := k.cfg.Call(ctx, string(at), Method, body)
	if err != nil {
		return nil, err
	}
	var a answer
	if err := cbor.Unmarshal(b, &a); err != nil {
		return nil, fmt.Errorf("malformed answer of %d bytes: %w", len(b), err)
	}
	if a.Of != q.Of {
		return nil, fmt.Errorf("host %s answers for itself, and not for host %s", at, host)
	}
	maps.DeleteFunc(a.Marks, func(by cluster.NodeID, _ uint64) bool { _, asked := need[by]; return !asked })
	return a.Marks, nil
}

// keepSaving saves, now and then, what hosts have said.
func (k *Keeper) keepSaving(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-k.unsavedYet:
			k.save(false)
			select { // what comes meanwhile is saved with the next
			case <-ctx.Done():
			case <-time.After(saving):
			}
		}
	}
	k.save(false)
}

// save writes what hosts have heard to the disk, and forgets the entries of which all have: without it an agent that is started
// anew would ask once more, and keep its containers from other hosts until they have answered.
func (k *Keeper) save(anyway bool) {
	snap := k.cfg.Snapshot()
	k.mu.Lock()
	none := len(k.unsaved) == 0
	k.mu.Unlock()
	if none && !anyway {
		return
	}
	var unsaved map[cluster.NodeID]bool
	err := k.db.Update(func(tx *store.Tx) error {
		k.mu.Lock() // behind the disk's own, as in Note
		defer k.mu.Unlock()
		unsaved, k.unsaved = k.unsaved, map[cluster.NodeID]bool{}
		k.forget(snap, unsaved)
		return k.write(tx, unsaved)
	})
	if err == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.Copy(k.unsaved, unsaved)
	k.cfg.Log.Warn("what other hosts have heard is not on the disk: an agent that is started anew asks them once more", "err", err)
}

// forget forgets entries of which all hosts have heard, and hosts that are gone, which are then to be written as well. k.mu is held.
func (k *Keeper) forget(snap *cluster.Snapshot, unsaved map[cluster.NodeID]bool) {
	low := k.byAll(snap)
	for by, counter := range k.table.latest() {
		if r := reachable(snap, by, counter); r < counter && low[by] >= r {
			low[by] = counter // nobody will hear more of it
		}
	}
	for _, one := range k.table.forget(low) {
		k.gone[one] = true
	}
	for host := range k.heard {
		if _, there := cluster.Get[cluster.Node](snap, string(host)); !there {
			delete(k.heard, host)
			unsaved[host] = true
		}
	}
}

// byAll are the marks that all other hosts have heard. k.mu is held.
func (k *Keeper) byAll(snap *cluster.Snapshot) (low marks) {
	for n := range cluster.All[cluster.Node](snap) {
		if n.ID == k.self {
			continue
		}
		heard := k.heard[n.ID]
		if len(heard) == 0 {
			return nil
		}
		if low == nil {
			low = maps.Clone(heard)
			continue
		}
		for by, counter := range low {
			if low[by] = min(counter, heard[by]); low[by] == 0 {
				delete(low, by)
			}
		}
	}
	return low
}

// write writes what these hosts have heard, and removes the entries that are gone. k.mu is held.
func (k *Keeper) write(tx *store.Tx, hosts map[cluster.NodeID]bool) error {
	for host := range hosts {
		m, there := k.heard[host]
		if !there {
			if err := heards.Delete(tx, string(host)); err != nil {
				return err
			}
			continue
		}
		if err := heards.Put(tx, string(host), m); err != nil {
			return err
		}
	}
	for one := range k.gone {
		if err := entries.Delete(tx, one.name()); err != nil {
			return err
		}
	}
	clear(k.gone)
	return nil
}
