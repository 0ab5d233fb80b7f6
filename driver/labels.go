package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/policy/plain"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/service/expose"
)

// labels learns those of containers.
type labels struct {
	core       *core
	unlabelled atomic.Pointer[[]Unlabelled] // for Unlabelled; the watcher's
	hears      atomic.Bool                  // Docker tells us its events: it answers
	kept       *docker.Kept                 // nil: what Docker keeps cannot be read
}

// Policies ask for containers' labels, which are fixed for a container's life and of which Docker tells a driver
// nothing: the watcher reads them from Docker's list. A container's first packet is to be judged by them, so Join
// asks Docker as well: for its network, which has the endpoint and the container's name,
// and for the list, which has that name's labels. Both wait for no lock that Docker holds meanwhile. Where
// Docker does not answer, as while it starts, what the watcher noted of the network's containers may say it.

const (
	// ownLabels begins the labels that grapevine itself gives: a container's own of that kind do not count.
	ownLabels = "grapevine.io/"
	// NameLabel is the container's name.
	NameLabel = ownLabels + "name"
	// askingFor is how long Join waits for Docker to tell a container's labels: ten times what it takes. After that
	// they are unknown until the watcher has them.
	askingFor = 300 * time.Millisecond
)

// noise are prefixes of labels that are told to nobody: they say how an image or a project was made, and take more
// room than all others. heed are those of them that are told.
var (
	noise = []string{"com.docker.compose.", "com.docker.swarm.", "desktop.docker.io/", "org.opencontainers.image.", "org.label-schema."}
	heed  = []string{"com.docker.compose.project", "com.docker.compose.service", "com.docker.compose.oneoff", "com.docker.swarm.service.name"}
)

// Published reports whether other hosts are told the labels with this key, so that policies can select containers by them.
func Published(key string) bool {
	return slices.Contains(heed, key) || !slices.ContainsFunc(noise, func(p string) bool { return strings.HasPrefix(key, p) })
}

// labelsOf returns the labels of a container of Docker's list as they are told.
func labelsOf(c docker.Container) map[string]string {
	labels := map[string]string{NameLabel: c.Name}
	for k, v := range c.Labels {
		if Published(k) && !strings.HasPrefix(k, ownLabels) {
			labels[k] = v
		}
	}
	return labels
}

// Unlabelled is a container whose labels the other hosts are not told, since they have no room in a record.
type Unlabelled struct{ Container, Network string }

// Unlabelled is Driver.Unlabelled.
func (d *labels) Unlabelled() []Unlabelled {
	if list := d.unlabelled.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}

// decideLabels sets the labels of an endpoint's record, as it is to be, by its container.
func (v view) decideLabels(p *plan, now *cluster.Endpoint, rec cluster.Endpoint, c docker.Container, network string) {
	if c.Labels == nil { // it is not in the list
		now.Labels, now.Labelled, now.Awaited = rec.Labels, rec.Labelled, rec.Awaited
		return
	}
	labels := labelsOf(c)
	if !cluster.LabelsFit(labels) {
		p.unlabelled = append(p.unlabelled, Unlabelled{Container: c.Name, Network: network})
		if n, live := cluster.Get[cluster.Network](v.snap, network); live && !n.Labelled && plain.Asks(labels) {
			p.labelled = append(p.labelled, network)
		}
		return
	}
	now.Labels, now.Labelled = labels, true
}

// decideAsking marks networks of containers that ask for something, also of those that have not started yet: one that
// Docker starts with itself is not asked for its labels.
func (v view) decideAsking(p *plan) {
	ids := v.idsByName()
	for _, c := range v.containers {
		if !plain.Asks(c.Labels) {
			continue
		}
		for _, at := range c.Networks {
			local, ours := v.local[cmp.Or(at.NetworkID, ids[at.Network])]
			if n, live := cluster.Get[cluster.Network](v.snap, local.Name); ours && live && !n.Labelled && !slices.Contains(p.labelled, n.Name) {
				p.labelled = append(p.labelled, n.Name)
			}
		}
	}
}

// asked reports whether anybody could ask for labels: a policy, or an egress.
func asked(snap *cluster.Snapshot) bool {
	for n := range cluster.All[cluster.Network](snap) {
		if n.Isolated() || n.Labelled {
			return true
		}
	}
	if cluster.PoliciesOf(snap).Any() {
		return true
	}
	for range cluster.All[cluster.LabelEgress](snap) {
		return true
	}
	return false
}

// markLabelled notes of a network that labels of its containers say who may talk to whom: those that are not known may.
func markLabelled(tx *replica.Tx, network string) {
	if n, live := cluster.Get[cluster.Network](tx.Snapshot(), network); live && !n.Labelled {
		n.Labelled = true
		_ = tx.Put(n) // Update reports it
	}
}

// noteExposing notes of a container whose labels ask for ports of all hosts since when they do: who asked for one first keeps it.
func noteExposing(tx *replica.Tx, rec *cluster.Endpoint) {
	switch {
	case rec.Labels[expose.Label] == "":
		rec.Exposing = 0
	case rec.Exposing == 0:
		rec.Exposing = tx.Snapshot().Latest() + 1
	}
}

// noteLabelled marks networks of containers whose labels ask for something, and have no room in a record.
func (d *applier) noteLabelled(networks []string) error {
	if len(networks) == 0 {
		return nil
	}
	_, err := d.core.replica.Update(func(tx *replica.Tx) error {
		for _, name := range networks {
			markLabelled(tx, name)
		}
		return nil
	})
	return err
}

// learnLabels writes the labels of a container that is about to start into its endpoint's record, if they can be
// known in time, and there are policies or they are such themselves. What it does not learn the watcher does. A
// container whose labels cannot be read as what they are meant to say does not start, nor does one of which no host
// could do what they say, since there are too many.
func (d *labels) learnLabels(ctx context.Context, e localEndpoint) error {
	snap := d.core.replica.Snapshot()
	rec, live := cluster.Get[cluster.Endpoint](snap, e.ID)
	if !live || rec.Labelled {
		return nil
	}
	if !d.hears.Load() { // while Docker starts nobody asks: decisions.md says what holds then
		return d.markKept(e.Network, rec.Network)
	}
	labels, err := d.askLabels(ctx, e)
	if err != nil {
		d.core.cfg.Log.Info("a container's labels are not known yet: until they are nothing passes from and to it", "endpoint", e.ID, "err", err)
		return d.await(e)
	}
	if err := errors.Join(plain.Check(labels), expose.Check(labels), plain.Misspelt(labels)); err != nil {
		return fmt.Errorf("container %s: %w", labels[NameLabel], err)
	}
	asks := plain.Asks(labels)
	if !cluster.LabelsFit(labels) {
		if asks {
			return fmt.Errorf("container %s: nobody would do what its labels %s and %s say, since it has more labels than hosts can be told: give it fewer or shorter ones, %d and %d kB in all at most",
				labels[NameLabel], plain.FromLabel, plain.ToLabel, cluster.MaxLabels, cluster.MaxLabelBytes/1024)
		}
		return nil
	}
	if !asks && !asked(snap) {
		return nil
	}
	_, err = d.core.replica.Update(func(tx *replica.Tx) error {
		if rec, live := cluster.Get[cluster.Endpoint](tx.Snapshot(), e.ID); live && rec.Host == d.core.cfg.Self && !rec.Labelled {
			rec.Labels, rec.Labelled = labels, true
			noteExposing(tx, &rec)
			_ = tx.Put(rec) // Update reports it
			if asks {
				markLabelled(tx, rec.Network)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("announce the labels of endpoint %.12s: %w", e.ID, err)
	}
	return nil
}

// askRoot asks Docker, which has begun to answer, where it keeps what markKept reads when it does not.
func (d *labels) askRoot(ctx context.Context) {
	if d.kept == nil {
		return
	}
	if err := d.kept.Ask(ctx, d.core.docker); err != nil && ctx.Err() == nil {
		d.core.cfg.Log.Warn("where Docker keeps containers is not known for its next start", "err", err)
	}
}

// markKept marks a network where Docker keeps on its disk that a container on it has labels which ask for something: one that was
// made while no agent ran, and that Docker now starts with itself.
func (d *labels) markKept(id, name string) error {
	n, live := cluster.Get[cluster.Network](d.core.replica.Snapshot(), name)
	if !live || n.Labelled || d.kept == nil {
		return nil
	}
	list, err := d.kept.Containers(plain.Labels)
	if err != nil {
		d.core.cfg.Log.Warn("it is not known of all containers whether they have labels that ask for something", "err", err)
	}
	asks := func(c docker.Container) bool {
		return plain.Asks(c.Labels) && slices.ContainsFunc(c.Networks, func(at docker.Attachment) bool { return at.NetworkID == id || at.Network == name })
	}
	if !slices.ContainsFunc(list, asks) {
		return nil
	}
	_, err = d.core.replica.Update(func(tx *replica.Tx) error {
		markLabelled(tx, name)
		return nil
	})
	if err != nil {
		return fmt.Errorf("note that labels on network %s ask for something: %w", name, err)
	}
	return nil
}

// await notes of an endpoint that it has labels that nobody knows yet. The watcher asks on.
func (d *labels) await(e localEndpoint) error {
	_, err := d.core.replica.Update(func(tx *replica.Tx) error {
		if rec, live := cluster.Get[cluster.Endpoint](tx.Snapshot(), e.ID); live && rec.Host == d.core.cfg.Self && !rec.Labelled {
			rec.Awaited = true
			_ = tx.Put(rec) // Update reports it
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("note that the labels of endpoint %.12s are not known yet: %w", e.ID, err)
	}
	return nil
}

// askLabels asks Docker for an endpoint's labels.
func (d *labels) askLabels(ctx context.Context, e localEndpoint) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, askingFor)
	defer cancel()
	attached, err := d.core.docker.Attached(ctx, e.Network)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(attached, func(c docker.Container) bool { return c.Networks[0].EndpointID == e.ID })
	if at < 0 {
		return nil, errors.New("docker does not list the endpoint")
	}
	list, err := d.core.docker.Containers(ctx)
	if err != nil {
		return nil, err
	}
	name := attached[at].Name
	at = slices.IndexFunc(list, func(c docker.Container) bool { return c.Name == name })
	if at < 0 || list[at].Labels == nil {
		return nil, fmt.Errorf("docker does not list the container %s", name)
	}
	return labelsOf(list[at]), nil
}
