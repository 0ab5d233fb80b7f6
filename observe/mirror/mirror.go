// Package mirror has all packets of a container copied to another one of the same host, for as long as somebody said.
package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/packets"
)

// Copy copies packets to a device inside a container; *packets.Copy is one.
type Copy interface {
	Name() string
	Ended() <-chan error
	Counts() (copied, lost uint64)
	Close() error
}

// Config of a Desk.
type Config struct {
	Self     cluster.NodeID
	Snapshot func() *cluster.Snapshot
	// Open begins to copy what endpoints of this host send and get, inside their container, to a device inside the
	// container of another one.
	Open func(from []cluster.Endpoint, to cluster.Endpoint) (Copy, error)
	Log  *slog.Logger
}

const (
	usual   = 10 * time.Minute
	longest = 24 * time.Hour
	most    = 4 // on one host at once
	// glance is how often it is looked whether the containers are still those that they were.
	glance = time.Second
)

// Desk is where mirrors are begun and ended.
type Desk struct {
	cfg Config

	mu   sync.Mutex
	life context.Context // nil: Run has not begun
	all  []*mirror
	runs sync.WaitGroup
}

// mirror is one that runs.
type mirror struct {
	api.Mirror
	from []cluster.Endpoint
	to   cluster.Endpoint
	copy Copy
	stop chan struct{} // closed by who wants it ended
	once sync.Once
}

// New makes a Desk.
func New(cfg Config) *Desk { return &Desk{cfg: cfg} }

// Run lets mirrors go on until ctx ends, and returns when all have ended.
func (d *Desk) Run(ctx context.Context) error {
	d.mu.Lock()
	d.life = ctx
	d.mu.Unlock()
	<-ctx.Done()
	d.runs.Wait()
	return nil
}

// Start begins a mirror.
func (d *Desk) Start(_ context.Context, r api.MirrorRequest) (api.Done, error) {
	m, err := d.plan(d.cfg.Snapshot(), r)
	if err != nil {
		return api.Done{}, api.Errorf(http.StatusBadRequest, "mirror the packets of %.80s: %v", r.Container, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life == nil || d.life.Err() != nil {
		return api.Done{}, fmt.Errorf("mirror the packets of %s: the agent is starting, or stops: try again", m.Container)
	}
	for _, o := range d.all {
		if o.Container == m.Container {
			return api.Done{}, api.Errorf(http.StatusConflict, "mirror the packets of %s: they go to %s already, until %s: end that first (grapevine mirror stop %s)", m.Container, o.To, clock(o.Until), o.Container)
		}
	}
	if len(d.all) >= most {
		return api.Done{}, api.Errorf(http.StatusConflict, "mirror the packets of %s: %d mirrors run on this host already: end one of them first (grapevine mirror list)", m.Container, most)
	}
	if m.copy, err = d.cfg.Open(m.from, m.to); err != nil {
		return api.Done{}, fmt.Errorf("mirror the packets of %s to %s: %w", m.Container, m.To, err)
	}
	m.Interface = m.copy.Name()
	d.all = append(d.all, m)
	d.runs.Go(func() { d.attend(d.life, m) })
	d.cfg.Log.Info("packets of a container are mirrored", "container", m.Container, "to", m.To, "interface", m.Interface, "until", m.Until)
	return api.Done{Text: fmt.Sprintf("%s sees all packets of %s at its interface %s until %s: tcpdump -i %s, inside it", m.To, m.Container, m.Interface, clock(m.Until), m.Interface)}, nil
}

func clock(t time.Time) string { return t.Format(time.DateTime) }

// plan finds out what a request is about.
func (d *Desk) plan(snap *cluster.Snapshot, r api.MirrorRequest) (*mirror, error) {
	from, err := d.endpoints(snap, r.Container)
	if err != nil {
		return nil, err
	}
	if r.To == "" {
		return nil, errors.New("to no container: add --to CONTAINER")
	}
	to, err := d.endpoints(snap, r.To)
	if err != nil {
		return nil, fmt.Errorf("to %.80s: %w", r.To, err)
	}
	if to[0].ID == from[0].ID || to[0].Container != "" && to[0].Container == from[0].Container {
		return nil, errors.New("to itself: name another container")
	}
	long := time.Duration(r.Seconds * float64(time.Second))
	switch {
	case r.Seconds == 0:
		long = usual
	case r.Seconds < 0 || r.Seconds > longest.Seconds() || long <= 0:
		return nil, fmt.Errorf("for %gs: a mirror lasts %v at most", r.Seconds, longest)
	}
	now := time.Now()
	return &mirror{
		Mirror: api.Mirror{Container: nameOf(from[0]), To: nameOf(to[0]), Since: now, Until: now.Add(long)},
		from:   from, to: to[0], stop: make(chan struct{}),
	}, nil
}

// endpoints are all those of the one container of this host that a text means.
func (d *Desk) endpoints(snap *cluster.Snapshot, text string) ([]cluster.Endpoint, error) {
	list, err := view.EndpointsOf(snap, text)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		switch {
		case e.Container != list[0].Container:
			return nil, fmt.Errorf("several containers are called so, %.12s and %.12s: name one by its ID (`grapevine ps` lists them)", list[0].Container, e.Container)
		case e.Host != d.cfg.Self:
			return nil, fmt.Errorf("it is on host %s, and a mirror has both containers on one: run it there, or with -H ssh://root@%s", snap.HostName(e.Host), snap.HostName(e.Host))
		}
	}
	return list, nil
}

func nameOf(e cluster.Endpoint) string { return cmp.Or(e.Name, fmt.Sprintf("%.12s", e.ID)) }

// attend ends a mirror when it is time, or somebody wants it, or it is none any more.
func (d *Desk) attend(life context.Context, m *mirror) {
	end, look := time.NewTimer(time.Until(m.Until)), time.NewTicker(glance)
	defer end.Stop()
	defer look.Stop()
	why := ""
	for why == "" {
		select {
		case <-life.Done():
			why = "the agent ends"
		case <-m.stop:
			why = "somebody ended it"
		case <-end.C:
			why = "its time was over"
		case err := <-m.copy.Ended():
			why = whyEnded(err)
		case <-look.C:
			why = m.changed(d.cfg.Snapshot())
		}
	}
	d.mu.Lock()
	d.all = slices.DeleteFunc(d.all, func(o *mirror) bool { return o == m })
	d.mu.Unlock()
	copied, lost := m.copy.Counts()
	err := m.copy.Close()
	d.cfg.Log.Info("packets of a container are mirrored no longer", "container", m.Container, "to", m.To, "why", why, "packets", copied, "lost", lost, "error", err)
}

func whyEnded(err error) string {
	switch {
	case errors.Is(err, packets.ErrGone):
		return "the container has ended, or left a network"
	case errors.Is(err, packets.ErrNoDevice):
		return "the interface for the copies is gone, or down"
	}
	return fmt.Sprint(err)
}

// changed says why the containers are not those any more that somebody named; empty: they are.
func (m *mirror) changed(snap *cluster.Snapshot) string {
	for _, was := range append(slices.Clone(m.from), m.to) {
		switch is, there := cluster.Get[cluster.Endpoint](snap, was.ID); {
		case !there:
			return nameOf(was) + " has ended, or left network " + was.Network
		case is.Name != was.Name:
			return fmt.Sprintf("%s is called %s now", nameOf(was), nameOf(is))
		}
	}
	return ""
}

// List are those that run, in the order in which they began.
func (d *Desk) List(context.Context) ([]api.Mirror, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := []api.Mirror{}
	for _, m := range d.all {
		one := m.Mirror
		one.Packets, one.Lost = m.copy.Counts()
		list = append(list, one)
	}
	return list, nil
}

// Stop ends mirrors.
func (d *Desk) Stop(_ context.Context, r api.StopMirrorRequest) (api.Done, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for _, m := range d.all {
		if r.All || m.Container == r.Container || strings.HasPrefix(m.from[0].Container, r.Container) && len(r.Container) >= 8 {
			m.once.Do(func() { close(m.stop) })
			names = append(names, m.Container)
		}
	}
	switch {
	case len(names) > 0:
		return api.Done{Text: "packets of " + strings.Join(names, ", ") + " are mirrored no longer"}, nil
	case r.All:
		return api.Done{Text: "no mirror runs on this host"}, nil
	}
	return api.Done{}, api.Errorf(http.StatusNotFound, "end the mirror of %.80s: none runs on this host: see `grapevine mirror list`", r.Container)
}

// Notes are what status says of them.
func (d *Desk) Notes() (notes []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.all {
		notes = append(notes, fmt.Sprintf("all packets of container %s are mirrored to container %s until %s (grapevine mirror stop %s ends it)", m.Container, m.To, clock(m.Until), m.Container))
	}
	return notes
}
