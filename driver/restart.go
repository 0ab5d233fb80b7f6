package driver

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
)

// Docker starts the containers that have a restart policy when it starts itself, and
// tries each once. Where the agent comes too late for that they have failed, and Docker
// leaves it at that; so the agent starts them when it comes.

const (
	restartsAtOnce = 4
	// restartPause is the first pause before containers are started again that could not be,
	// which doubles up to restartSeldom.
	restartPause  = time.Second
	restartSeldom = 30 * time.Second
)

// Unstarted is a container that Docker failed to start by itself since this driver refused, or was
// not there, and that still does not run.
type Unstarted struct{ Container, Why string }

// Unstarted is Driver.Unstarted.
func (d *mirror) Unstarted() []Unstarted {
	if list := d.unstarted.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}

// restartFailed does that as soon as Docker answers, which it does not before it is done with its own
// attempts; and until all run, or somebody has done something about them.
func (d *mirror) restartFailed(ctx context.Context) {
	tried := map[string]bool{} // by ID: why they fail may be another reason later
	pause, again := minRetry, restartPause
	for ctx.Err() == nil {
		stranded, within, err := d.stranded(ctx, tried)
		if err == nil {
			failed := slices.Concat(d.start(ctx, stranded), d.start(ctx, within))
			slices.SortFunc(failed, func(a, b Unstarted) int { return strings.Compare(a.Container, b.Container) })
			d.noteUnstarted(failed)
			if len(failed) == 0 {
				return
			}
			pause, again = again, min(2*again, restartSeldom)
		}
		sleep(ctx, pause)
		if err != nil {
			pause = min(2*pause, maxRetry)
		}
	}
}

// noteUnstarted keeps what did not start for Unstarted, and logs what is new of it.
func (d *mirror) noteUnstarted(failed []Unstarted) {
	before := d.Unstarted()
	for _, u := range failed {
		if !slices.Contains(before, u) {
			d.core.cfg.Log.Warn("a container that Docker was not able to start by itself cannot be started yet", "container", u.Container, "err", u.Why)
		}
	}
	d.unstarted.Store(&failed)
}

// stranded returns the containers that Docker could not start because it found no
// agent, or because that refused, and those that could not start because their network namespace
// is that of one of these. Which ones are it notes in tried: those are it until they run.
func (d *mirror) stranded(ctx context.Context, tried map[string]bool) (stranded, within []docker.Container, err error) {
	d.applier.looking.Lock() // covers the driver's name
	name, err := d.core.driverName(ctx)
	d.applier.looking.Unlock()
	if err != nil {
		return nil, nil, err
	}
	all, err := d.core.docker.Containers(ctx)
	if err != nil {
		return nil, nil, err
	}
	networks, err := d.core.docker.Networks(ctx)
	if err != nil {
		return nil, nil, err
	}
	ours := map[string]bool{}
	for _, n := range networks {
		ours[n.ID], ours[n.Name] = n.Driver == name, n.Driver == name
	}
	missed := missing(name, d.core.cfg.Socket)
	ids := map[string]bool{}
	for _, c := range all {
		if c.State != "exited" || len(c.Networks) == 0 {
			continue
		}
		failed, err := d.failed(ctx, c)
		if err != nil {
			return nil, nil, err
		}
		onOurs := slices.ContainsFunc(c.Networks, func(at docker.Attachment) bool { return ours[at.NetworkID] || ours[at.Network] })
		if missed(failed) || onOurs && refusedBy().MatchString(failed) || failed != "" && tried[c.ID] {
			tried[c.ID] = true
			ids[c.ID], ids[c.Name] = true, true
			stranded = append(stranded, c)
		}
	}
	for _, c := range all {
		if c.State != "exited" || !ids[c.Within] {
			continue
		}
		failed, err := d.failed(ctx, c)
		if err != nil {
			return nil, nil, err
		}
		if failed != "" {
			within = append(within, c)
		}
	}
	return stranded, within, nil
}

// failed is why Docker failed to start a container that it was to start by itself.
func (d *mirror) failed(ctx context.Context, c docker.Container) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	details, err := d.core.docker.Inspect(ctx, c.ID)
	if errors.Is(err, docker.ErrNotFound) || err == nil && !details.Restarts {
		return "", nil
	}
	return details.Failed, err
}

// missing returns what tells whether an error of Docker's is that it did not find this
// driver: none of its name, one that is disabled, or nobody at its socket; or one that was
// just about to be another host's.
func missing(driver, socket string) func(failed string) bool {
	unknown := regexp.MustCompile(`plugin "?` + regexp.QuoteMeta(driver) + `"? (not found|found but disabled)`)
	base := filepath.Base(socket)
	return func(failed string) bool {
		for _, err := range []error{cluster.ErrForgotten, errUnknownNetwork} {
			if strings.Contains(failed, err.Error()) {
				return true
			}
		}
		return unknown.MatchString(failed) || strings.Contains(failed, base+": connect: ")
	}
}

// refusedBy matches an error of Docker's that a driver, which is no part of it, returned.
var refusedBy = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\b(remote: |(NetworkDriver|IpamDriver)\.[A-Z])`) })

// start starts containers, and returns those that did not when that is done.
func (d *mirror) start(ctx context.Context, containers []docker.Container) (failed []Unstarted) {
	var g errgroup.Group
	g.SetLimit(restartsAtOnce)
	errs := make([]error, len(containers))
	for i, c := range containers {
		g.Go(func() error {
			errs[i] = d.core.docker.Start(ctx, c.ID)
			return nil
		})
	}
	_ = g.Wait() // none returns an error
	for i, c := range containers {
		switch {
		case errs[i] == nil:
			d.core.cfg.Log.Info("started a container that Docker had not been able to start without this driver", "container", c.Name)
		case !errors.Is(errs[i], docker.ErrNotFound) && ctx.Err() == nil:
			failed = append(failed, Unstarted{Container: c.Name, Why: errs[i].Error()})
		}
	}
	return failed
}
