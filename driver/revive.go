package driver

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/internal/docker"
)

// Docker starts the containers that have a restart policy when it starts itself, and
// tries each once. Where the agent comes too late for that they have failed, and Docker
// leaves it at that; so the agent starts them when it comes.

const (
	reviveAtOnce = 4
	reviveTries  = 5
	revivePause  = time.Second // before the second try, doubled before each further one
)

// revive does that once, as soon as Docker answers: it does not before it is done with
// its own attempts.
func (d *Driver) revive(ctx context.Context) {
	for pause := minRetry; ctx.Err() == nil; pause = min(2*pause, maxRetry) {
		stranded, within, err := d.stranded(ctx)
		if err == nil {
			d.start(ctx, stranded)
			d.start(ctx, within)
			return
		}
		sleep(ctx, pause)
	}
}

// stranded returns the containers that Docker could not start because it found no
// agent, and those that could not start because their network namespace is that of one
// of these.
func (d *Driver) stranded(ctx context.Context) (stranded, within []docker.Container, err error) {
	d.looking.Lock() // covers the driver's name
	name, err := d.driverName(ctx)
	d.looking.Unlock()
	if err != nil {
		return nil, nil, err
	}
	all, err := d.docker.Containers(ctx)
	if err != nil {
		return nil, nil, err
	}
	missed := missing(name, d.cfg.Socket)
	ids := map[string]bool{}
	for _, c := range all {
		if c.State != "exited" || len(c.Networks) == 0 {
			continue
		}
		failed, err := d.failed(ctx, c)
		if err != nil {
			return nil, nil, err
		}
		if missed(failed) {
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
func (d *Driver) failed(ctx context.Context, c docker.Container) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	details, err := d.docker.Inspect(ctx, c.ID)
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

// start starts containers, and returns when that is done.
func (d *Driver) start(ctx context.Context, containers []docker.Container) {
	var g errgroup.Group
	g.SetLimit(reviveAtOnce)
	for _, c := range containers {
		g.Go(func() error {
			d.startOne(ctx, c)
			return nil
		})
	}
	_ = g.Wait() // each has logged its own
}

func (d *Driver) startOne(ctx context.Context, c docker.Container) {
	log := d.cfg.Log.With("container", c.Name)
	var err error
	for try, pause := 0, revivePause; try < reviveTries && ctx.Err() == nil; try, pause = try+1, 2*pause {
		if try > 0 {
			sleep(ctx, pause)
		}
		err = d.docker.Start(ctx, c.ID)
		switch {
		case err == nil:
			log.Info("started a container that Docker had not been able to start without this driver")
			return
		case errors.Is(err, docker.ErrNotFound):
			return
		}
	}
	log.Warn("a container that Docker was not able to start without this driver cannot be started", "err", err)
}
