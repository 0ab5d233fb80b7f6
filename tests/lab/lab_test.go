package lab_test

import (
	"context"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// A run of all tests has these beside the scenarios, with one line of arguments for both.
var _ = flag.Bool("turns", false, "nothing here takes turns")

func TestMain(m *testing.M) { lab.Main(m) }

func newLab(t *testing.T, opts lab.Options) (context.Context, *lab.Lab) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	opts.Progress = func(line string) { t.Log(line) }
	l, err := lab.New(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return ctx, l
}

func must(t *testing.T) func(string, error) string {
	return func(out string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
}

// A container on Docker's own bridge goes out by its host's address; what the
// outside sees says so.
func TestOutsideSeesTheHostOnly(t *testing.T) {
	t.Parallel()
	ctx, l := newLab(t, lab.Options{Hosts: 1})
	h, run := l.Hosts[0], must(t)
	run(h.Docker(ctx, "run", "-d", "--name", "web", "-p", "8080:80", "--hostname", "web", lab.Image))
	c := container(ctx, t, h, "web")
	if got := run(c.Fetch(ctx, "http://"+lab.OutsideAddr+"/")); got != h.Addr().String() {
		t.Errorf("the outside saw %q, want the host's address %s", got, h.Addr())
	}
	if got := run(l.Outside.Fetch(ctx, "http://"+h.Addr().String()+":8080/")); got != "web" {
		t.Errorf("the published port answered %q, want the container's name", got)
	}
}

// Docker's swarm overlay between two hosts: the wire carries VXLAN, a cut link
// stops it, and pings are counted.
func TestOverlayOfSwarmAndCutLink(t *testing.T) {
	t.Parallel()
	ctx, l := newLab(t, lab.Options{Hosts: 2, Swarm: true})
	run, a, b := must(t), l.Hosts[0], l.Hosts[1]
	run(a.Docker(ctx, "swarm", "init", "--advertise-addr", a.Addr().String()))
	token := run(a.Docker(ctx, "swarm", "join-token", "-q", "worker"))
	run(b.Docker(ctx, "swarm", "join", "--token", token, a.Addr().String()+":2377"))
	run(a.Docker(ctx, "network", "create", "-d", "overlay", "--attachable", "over"))
	run(a.Docker(ctx, "run", "-d", "--name", "app", "--network", "over", lab.Image))
	run(b.Docker(ctx, "run", "-d", "--name", "db", "--network", "over", lab.Image))
	app, db := container(ctx, t, a, "app"), container(ctx, t, b, "db")
	if err := app.Reach(ctx, 10*time.Second, db.Addrs["over"]...); err != nil {
		t.Fatal(err)
	}
	p, err := app.StartPinging(ctx, db.Addrs["over"][0], 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	run("", l.Wire.Cut(ctx, a.Name, b.Name))
	if err := app.Silent(ctx, time.Second, db.Addrs["over"]...); err != nil {
		t.Error(err)
	}
	run("", l.Wire.Heal(ctx))
	if err := app.Reach(ctx, 10*time.Second, db.Addrs["over"]...); err != nil {
		t.Error(err)
	}
	result, err := p.Stop(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if result.Lost() < 50 || result.Gap < time.Second || result.Received < 50 {
		t.Errorf("the pings across the cut saw %+v, want a gap of a second and more", result)
	}
	t.Logf("pings: %+v", result)
}

func container(ctx context.Context, t *testing.T, h *lab.Host, name string) lab.Container {
	t.Helper()
	c, err := h.Container(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
