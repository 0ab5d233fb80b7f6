package multicast

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// Replica is the cluster's state here: *replica.Replica.
type Replica interface {
	Snapshot() *cluster.Snapshot
	Watch() (changed <-chan struct{})
	Update(func(*replica.Tx) error) (rev uint64, err error)
}

// Next gets the same calls. No call may block.
type Next interface {
	Attach(endpoint, key string)
	Detach(endpoint string)
}

// Config of a Room.
type Config struct {
	Self    cluster.NodeID
	Replica Replica
	Next    Next
	Log     *slog.Logger
}

// pace is the least time between two words of this host about groups.
const pace = time.Second

// Room tells the cluster which groups this host's containers are members of. Use New.
type Room struct {
	cfg  Config
	wake chan struct{} // capacity 1

	mu   sync.Mutex
	keys map[string]string // of the endpoints that are attached
	book *book

	// What belongs to Run.
	sandboxes map[string]*sandbox // by endpoint
	spoke     time.Time
	logged    string
}

// New returns a Room. Nothing is done before Run.
func New(cfg Config) *Room {
	return &Room{cfg: cfg, wake: make(chan struct{}, 1), keys: map[string]string{}, book: newBook(), sandboxes: map[string]*sandbox{}}
}

// Attach has a container looked at, if its network carries multicast. key is the file of its network namespace, which may come later
// than the call. It does not block, and may be called again, and before Run.
func (r *Room) Attach(endpoint, key string) {
	r.mu.Lock()
	r.keys[endpoint] = key
	r.mu.Unlock()
	r.poke()
	r.cfg.Next.Attach(endpoint, key)
}

// Detach ends what Attach began. Detaching what is not attached is no error.
func (r *Room) Detach(endpoint string) {
	r.mu.Lock()
	delete(r.keys, endpoint)
	r.mu.Unlock()
	r.poke()
	r.cfg.Next.Detach(endpoint)
}

func (r *Room) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run tells what there is to tell until ctx is done. What was told stays when it returns: so does what the switch makes of it.
func (r *Room) Run(ctx context.Context) error {
	defer func() {
		for _, s := range r.sandboxes {
			s.close()
		}
	}()
	for {
		changed := r.cfg.Replica.Watch()
		if !r.pass(time.Now()) {
			select { // nobody here is on a network that carries multicast
			case <-ctx.Done():
				return nil
			case <-r.wake:
			case <-changed:
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(beat):
		}
	}
}

// pass looks at all whose time it is, tells what has changed, and reports whether there is somebody to look at.
func (r *Room) pass(now time.Time) bool {
	snap := r.cfg.Replica.Snapshot()
	told := map[string]cluster.Listen{}
	for l := range cluster.Written[cluster.Listen](snap, r.cfg.Self) {
		told[l.Endpoint] = l
	}
	r.mu.Lock()
	keys := maps.Clone(r.keys)
	r.mu.Unlock()
	maps.DeleteFunc(keys, func(id, _ string) bool { return !carries(snap, id) })
	errs := r.follow(keys, told, now)
	for id, s := range r.sandboxes {
		if now.Before(s.due) {
			continue
		}
		groups, more, err := s.read()
		if err != nil {
			errs = append(errs, err.Error())
			continue
		}
		s.due = now
		if more {
			s.due = now.Add(rest)
		}
		r.mu.Lock()
		r.book.see(id, groups, now)
		r.mu.Unlock()
	}
	if now.Sub(r.spoke) >= pace {
		if err := r.tell(snap, told, now); err != nil {
			errs = append(errs, err.Error())
		}
	}
	r.report(errs)
	return len(keys) > 0 || len(told) > 0 // of endpoints that are gone, too: that is to be taken back
}

// carries reports whether an endpoint's network carries multicast.
func carries(snap *cluster.Snapshot, endpoint string) bool {
	e, there := cluster.Get[cluster.Endpoint](snap, endpoint)
	n, _ := cluster.Get[cluster.Network](snap, e.Network)
	return there && n.Multicast()
}

// follow has files of the sandboxes of these endpoints, and of no others, as far as they are there. What was told of them stays until they
// are looked at.
func (r *Room) follow(keys map[string]string, told map[string]cluster.Listen, now time.Time) (errs []string) {
	for id, s := range r.sandboxes {
		if keys[id] != s.key {
			s.close()
			delete(r.sandboxes, id)
			r.mu.Lock()
			r.book.forget(id)
			r.mu.Unlock()
		}
	}
	for id, key := range keys {
		if r.sandboxes[id] != nil {
			continue
		}
		s, err := open(id, key)
		if err != nil {
			errs = append(errs, err.Error())
		}
		if s != nil {
			r.sandboxes[id] = s
			r.mu.Lock()
			r.book.restore(id, told[id].Groups, now)
			r.mu.Unlock()
		}
	}
	return errs
}

// tell writes what has changed. What was told of an endpoint that is not looked at yet stays, while there is such an endpoint.
func (r *Room) tell(snap *cluster.Snapshot, told map[string]cluster.Listen, now time.Time) error {
	var put []cluster.Listen
	var gone []cluster.Key
	for id := range r.sandboxes {
		r.mu.Lock()
		groups := r.book.told(id)
		r.mu.Unlock()
		switch was, there := told[id]; {
		case len(groups) > 0 && !slices.Equal(groups, was.Groups):
			put = append(put, cluster.Listen{Endpoint: id, Host: r.cfg.Self, Groups: groups})
		case len(groups) == 0 && there:
			gone = append(gone, was.Key())
		}
	}
	for id, l := range told {
		if !carries(snap, id) {
			gone = append(gone, l.Key())
		}
	}
	if len(put)+len(gone) == 0 {
		return nil
	}
	r.spoke = now
	_, err := r.cfg.Replica.Update(func(tx *replica.Tx) error {
		for _, l := range put {
			if !carries(tx.Snapshot(), l.Endpoint) {
				continue // it has gone meanwhile
			}
			if err := tx.Put(l); err != nil {
				return err
			}
		}
		for _, k := range gone {
			tx.Delete(k)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("tell the other hosts which multicast groups containers are members of: %w", err)
	}
	return nil
}

// report logs what is wrong, once.
func (r *Room) report(errs []string) {
	slices.Sort(errs)
	text := strings.Join(errs, "; ")
	if text != r.logged && text != "" {
		r.cfg.Log.Warn("not all that containers are members of is known, trying again", "error", text)
	}
	r.logged = text
}

// Problems says whose groups are not all told.
func (r *Room) Problems(snap *cluster.Snapshot) (list []api.Problem) {
	r.mu.Lock()
	refused := r.book.refused()
	var crowd []string
	for _, id := range r.book.most(3) {
		crowd = append(crowd, fmt.Sprintf("%s (%d)", nameOf(snap, id), len(r.book.told(id))))
	}
	r.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(refused)) {
		e, there := cluster.Get[cluster.Endpoint](snap, id)
		if !there {
			continue
		}
		what := fmt.Sprintf("container %s gets nothing of %d multicast groups that it has joined on network %s: ", nameOf(snap, id), refused[id].groups, e.Network)
		do := "find out which program joins so many (/proc/net/igmp in the container), and end it or have it join fewer"
		if refused[id].crowded {
			what += fmt.Sprintf("all containers of a host get %d groups, and others here have them, most of all %s", cluster.MaxHostGroups, strings.Join(crowd, ", "))
			do = "find out which program of those joins so many (/proc/net/igmp in the container), and end it or have it join fewer; or run this container on another host"
		} else {
			what += fmt.Sprintf("a container gets %d groups", cluster.MaxGroups)
		}
		list = append(list, api.Problem{Code: api.GroupsRefused, What: what, Do: do})
	}
	return list
}

func nameOf(snap *cluster.Snapshot, endpoint string) string {
	if e, _ := cluster.Get[cluster.Endpoint](snap, endpoint); e.Name != "" {
		return e.Name
	}
	return fmt.Sprintf("%.12s", endpoint)
}
