package hold

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/portreserve"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/service/expose"
)

const (
	// Patience is for how long the port of a program that has ended stays its own: it may be restarting, or begin late at a boot.
	Patience = 5 * time.Minute
	// reminder is how often Docker is asked whose a port is that somebody has, or for longer than this a container is to have.
	reminder = time.Minute
	// dockers is the program that has a container's port.
	dockers = "docker-proxy"
)

// Publisher is a container whose configuration has ports of this host by -p, whether it runs or not.
type Publisher struct {
	Name    string
	Running bool
	Has     func(expose.Port) bool
}

// earlier had an exposed port on this host before the host could take it. It stays the earlier one's while that one is away, as
// over its restart or a boot.
type earlier struct {
	Name    string          // the exposure's
	Version cluster.Version // of the exposure's record: a newer one exposes the port anew
	By      string          // who
	// Container: it is one, by -p. Its removal is its end.
	Container bool

	unsaved bool
	// Of this life of the agent, by the time of rounds.
	away  time.Time // since when nobody has the port; zero: somebody has
	free  time.Time // since when, besides, Docker says that no container is to have it; zero: it does not say so
	asked time.Time // when Docker was asked last
	heard time.Time // which of its answers is thought of already
	meant bool      // that answer named a container that is to have it
	next  string    // which one, if it is not By
}

var earlierBucket = store.NewBucket[earlier]("exposed-before")

// answer is what Docker said when it was asked at a round.
type answer struct {
	at   time.Time
	list []Publisher
	err  error
}

// past knows the earlier ones, on the disk too. Only inquire may run beside the other methods.
type past struct {
	file       store.File // nil: nothing lasts
	publishers func(context.Context) ([]Publisher, error)
	log        *slog.Logger
	who        map[string]*earlier // by port
	ask        chan time.Time
	told       chan answer
	last       answer
}

func newPast(cfg Config) *past {
	p := &past{file: cfg.State, publishers: cfg.Publishers, log: cfg.Log, who: map[string]*earlier{}, ask: make(chan time.Time, 1), told: make(chan answer, 1)}
	if p.file == nil {
		return p
	}
	err := p.file.View(func(tx *store.Tx) error {
		return earlierBucket.ForEach(tx, func(port string, f earlier) error {
			p.who[port] = &f
			return nil
		})
	})
	if err != nil {
		p.log.Warn("who had exposed ports before they were exposed is not known any more, and they are taken if they are free", "error", err)
	}
	return p
}

// inquire asks Docker, which may take its time, until ctx is done.
func (p *past) inquire(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-p.ask:
			p.inquireAt(ctx, at)
		}
	}
}

func (p *past) inquireAt(ctx context.Context, at time.Time) {
	a := answer{at: at}
	if p.publishers != nil {
		a.list, a.err = p.publishers(ctx)
	}
	select {
	case <-p.told: // nobody wants the older one
	default:
	}
	p.told <- a
}

// has returns who is to keep the port of an exposure, nil if nobody is. taken says who has it now; it is asked when look is set.
func (p *past) has(e expose.Exposure, v cluster.Version, look bool, now time.Time, taken func() (by string, is bool)) *earlier {
	f := p.who[e.Text()]
	if f == nil {
		return nil
	}
	if f.Name != e.Name() || f.Version != v {
		p.forget(e.Port)
		return nil
	}
	if look {
		p.look(f, now, taken)
	}
	select {
	case p.last = <-p.told:
	default:
	}
	p.hear(e.Port, f)
	if !f.free.IsZero() && (f.Container || now.Sub(f.free) >= Patience) {
		p.forget(e.Port)
		return nil
	}
	if f.unsaved && look {
		p.save(e.Port, f)
	}
	return f
}

func (p *past) look(f *earlier, now time.Time, taken func() (string, bool)) {
	by, is := taken()
	switch {
	case is:
		f.away, f.free = time.Time{}, time.Time{}
		if by != "" && !f.Container && by != f.By {
			f.By, f.unsaved = by, true
		}
	case f.away.IsZero():
		f.away = now
	}
	slow := is || f.meant && now.Sub(f.away) >= reminder // a container that is being removed loses its port first
	if slow && !f.asked.IsZero() && now.Sub(f.asked) < reminder {
		return
	}
	p.inquiry(f, now)
}

// inquiry has Docker asked.
func (p *past) inquiry(f *earlier, now time.Time) {
	select {
	case p.ask <- now:
	default: // it is asked already
	}
	f.asked = now
}

// hear thinks of Docker's last answer.
func (p *past) hear(port expose.Port, f *earlier) {
	if !p.last.at.After(f.heard) {
		return
	}
	f.heard = p.last.at
	var meant []string
	for _, c := range p.last.list {
		if !c.Has(port) {
			continue
		}
		by := "container " + c.Name + " (-p)"
		meant = append(meant, by)
		if (c.Running || strings.HasPrefix(f.By, dockers)) && (!f.Container || f.By != by) {
			f.By, f.Container = by, true
			p.save(port, f)
		}
	}
	if f.meant = len(meant) > 0; f.meant || p.last.err == nil {
		f.next = ""
	}
	if f.meant && !slices.Contains(meant, f.By) {
		f.next = meant[0]
	}
	switch {
	case f.meant || p.last.err != nil || f.away.IsZero():
		f.free = time.Time{}
	case f.free.IsZero() && !p.last.at.Before(f.away):
		f.free = p.last.at
	}
}

// note notes who has a port.
func (p *past) note(e expose.Exposure, v cluster.Version, by string, now time.Time) {
	f := &earlier{Name: e.Name(), Version: v, By: by}
	p.who[e.Text()] = f
	p.save(e.Port, f)
	p.inquiry(f, now)
}

func (p *past) save(port expose.Port, f *earlier) {
	f.unsaved = false
	if p.file == nil {
		return
	}
	if err := p.file.Update(func(tx *store.Tx) error { return earlierBucket.Put(tx, port.Text(), *f) }); err != nil {
		f.unsaved = true
		p.log.Warn("the agent cannot note who had an exposed port before, and tries again", "port", port.Text(), "error", err)
	}
}

func (p *past) forget(port expose.Port) {
	if p.who[port.Text()] == nil {
		return
	}
	delete(p.who, port.Text())
	if p.file == nil {
		return
	}
	if err := p.file.Update(func(tx *store.Tx) error { return earlierBucket.Delete(tx, port.Text()) }); err != nil {
		p.log.Warn("the agent cannot note that an exposed port is nobody else's any more", "port", port.Text(), "error", err)
	}
}

// keep forgets the ports that are exposed no more.
func (p *past) keep(wanted map[expose.Port]string) {
	kept := map[string]bool{}
	for port := range wanted {
		kept[port.Text()] = true
	}
	for text := range p.who {
		if port, ok := portNamed(text); ok && !kept[text] {
			p.forget(port)
		}
	}
}

func portNamed(text string) (expose.Port, bool) {
	list, err := expose.Parse(text)
	if err != nil || len(list) != 1 {
		return expose.Port{}, false
	}
	return expose.Port{UDP: list[0].Proto == "udp", Port: list[0].Port}, true
}

// versionOf is that of the record that asks for an exposure. Labels have none.
func versionOf(snap *cluster.Snapshot, e expose.Exposure) cluster.Version {
	if e.Service == "" {
		return cluster.Version{}
	}
	r, _ := snap.Record(cluster.Service{Network: e.Network, Name: e.Service}.Key())
	return r.Version
}

// hasNow says who has a port of this host at this moment.
func (r *Room) hasNow(e expose.Exposure) (by string, is bool) {
	if r.cfg.Publishes != nil {
		if by = r.cfg.Publishes(e.Proto(), e.Port.Port); by != "" {
			return by, true
		}
	}
	if !portreserve.Taken(e.Proto(), e.Port.Port) {
		return "", false
	}
	return portreserve.User(e.Proto(), e.Port.Port), true
}
