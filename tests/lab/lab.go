package lab

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Kind is what a host is made of.
type Kind int

const (
	// Namespace hosts share the machine's kernel.
	Namespace Kind = iota
	// UML hosts run a User-Mode Linux kernel each.
	UML
)

func (k Kind) String() string {
	if k == UML {
		return "uml"
	}
	return "namespace"
}

// Options says what a lab is made of.
type Options struct {
	// Hosts is how many there are: host1, host2, ...
	Hosts int
	// Kind of all of them.
	Kind Kind
	// Agent is the grapevine program; empty: bin/grapevine of this module, if it is there.
	Agent string
	// AgentEnv is added to every agent's environment, NAME=value each.
	AgentEnv []string
	// Tree is a debootstrapped Debian whose programs the hosts use in place of the
	// machine's, for another release of Docker; empty: the machine's. Namespace hosts only.
	Tree string
	// Plugin is a directory with a managed plugin (scripts/build-plugin --directory),
	// which the hosts see at /lab/plugin; empty: none.
	Plugin string
	// Compose is the program of Docker Compose v2 (scripts/compose), which the hosts
	// have as `docker compose`, with the examples at /lab/examples; empty: none.
	// Namespace hosts only.
	Compose string
	// Modules is a tree of modules (scripts/kernel-modules) that the kernels of UML hosts have in place of their own: those have
	// neither WireGuard nor nf_tables for IP; empty: their own.
	Modules string
	// MTU of the wire in bytes; 0: 1500.
	MTU int
	// Swarm starts dockerd without live-restore, which swarm mode forbids.
	Swarm bool
	// BridgeIPv6 gives Docker's default bridge IPv6 as well.
	BridgeIPv6 bool
	// LittleGC lets the programs in Go of namespace hosts (Docker's, the agent) spend memory where they would spend the
	// processors' time, of which a tenth goes to that: Docker starts dockerd, which is large, three times for each container.
	LittleGC bool
	// Progress is called with a line about each step, from several goroutines; nil: silent.
	Progress func(string)
}

// Patience is how many times as long everything may take now as on namespace hosts on the machine's own
// kernel. System calls are slow in UML, and a [Guest] is slow altogether. If a crowd of programs, whosever,
// waits for the processors, each takes longer by as much. What is promised within five seconds is promised of a
// host that can run.
func (o Options) Patience() time.Duration {
	const most = 4 // times, of a crowd
	kind := 1.0
	switch {
	case InGuest():
		kind = 15 * min(max(aroundGuest(), 1), most)
	case o.Kind == UML:
		kind = 6
	}
	return time.Duration(math.Round(kind * min(max(Crowd(), 1), most)))
}

// Crowd is how many run or wait for a processor, over the last minute, in terms of as many as make a crowd.
func Crowd() float64 {
	const crowded = 4 // for each processor
	text, _ := os.ReadFile("/proc/loadavg")
	var load float64
	_, _ = fmt.Sscan(string(text), &load)
	return load / float64(crowded*runtime.NumCPU())
}

// Lab is a number of running Docker hosts on one wire.
type Lab struct {
	Hosts   []*Host
	Wire    *Wire
	Outside *Outside

	opts    Options
	id      string
	dir     string // below base: a tmpfs
	key     string // gossip key of the agents
	bare    bool   // its hosts load the image themselves
	begin   string // else: see [Lab.loaded]
	kept    bool
	closing sync.Once
	cpu     time.Duration // when it was closed
	buildMu sync.Mutex    // one commit's program at a time

	preloadOnce sync.Once
	preloadFile string
	preloadErr  error
}

// base is where labs are, a directory each.
const base = "/run/grapevine-lab"

// New builds a lab and boots its hosts, with a dockerd that is ready and no agent
// yet. It removes what labs of dead processes left. If it fails, nothing of it is
// left; otherwise the caller calls Close.
func New(ctx context.Context, opts Options) (*Lab, error) {
	if opts.MTU == 0 {
		opts.MTU = 1500
	}
	if err := Clean(false); err != nil {
		return nil, fmt.Errorf("remove what earlier labs left: %w", err)
	}
	l := newLab(opts)
	if err := l.build(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func newLab(opts Options) *Lab {
	l := &Lab{opts: opts, id: "gvlab" + rand.Text()[:6], key: newKey(), bare: InGuest()} // a guest has but one lab
	l.dir = filepath.Join(base, l.id)
	return l
}

func newKey() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return base64.StdEncoding.EncodeToString(key)
}

func (l *Lab) build(ctx context.Context) error {
	if err := l.makeDir(); err != nil {
		return err
	}
	if err := l.fillShare(); err != nil {
		return err
	}
	var err error
	if l.Wire, err = startWire(ctx, l.sub("wire")); err != nil {
		return fmt.Errorf("start the wire: %w", err)
	}
	if l.Outside, err = startOutside(ctx, l.sub("outside"), l.Wire); err != nil {
		return err
	}
	for i := range l.opts.Hosts {
		l.Hosts = append(l.Hosts, newHost(l, i+1))
	}
	if l.begin == "" && !l.bare {
		if l.begin, err = l.loaded(ctx); err != nil {
			return err
		}
	}
	return l.Each(func(h *Host) error {
		if err := h.Boot(ctx); err != nil || !l.bare {
			return err
		}
		return loadImage(ctx, h)
	})
}

// makeDir makes the lab's tmpfs and registers the lab, for Clean.
func (l *Lab) makeDir() error {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return fmt.Errorf("make the lab's directory (are you root?): %w", err)
	}
	if err := register(l.dir); err != nil {
		return err
	}
	open.add(l)
	if err := unix.Mount("grapevine-lab", l.dir, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount the lab's tmpfs: %w", err)
	}
	return register(l.dir)
}

func (l *Lab) sub(names ...string) string { return filepath.Join(append([]string{l.dir}, names...)...) }
func (l *Lab) share() string              { return l.sub("share") }

func (l *Lab) progress(format string, args ...any) {
	if l.opts.Progress != nil {
		l.opts.Progress(fmt.Sprintf(format, args...))
	}
}

// ID is the lab's name on this machine, as in List.
func (l *Lab) ID() string { return l.id }

// Each does the same on all hosts at once and waits for all of them.
func (l *Lab) Each(do func(*Host) error) error {
	var g errgroup.Group
	for _, h := range l.Hosts {
		g.Go(func() error {
			if err := do(h); err != nil {
				return fmt.Errorf("%s: %w", h.Name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// Host returns the host of the given name.
func (l *Lab) Host(name string) (*Host, error) {
	for _, h := range l.Hosts {
		if h.Name == name {
			return h, nil
		}
	}
	return nil, fmt.Errorf("no host is named %q: this lab has host1 to host%d", name, len(l.Hosts))
}

// Keep lets the lab outlive this process, until `lab clean -kept`. The outside and
// the hosts go on; Close then does nothing.
func (l *Lab) Keep() error {
	boxes := []*box{l.Wire.box, l.Outside.box}
	for _, h := range l.Hosts {
		if b, ok := h.machine.(*nsMachine); ok {
			boxes = append(boxes, b.box)
		}
	}
	for _, b := range boxes {
		if err := b.keep(); err != nil {
			return fmt.Errorf("keep %s: %w", b.name, err)
		}
	}
	if err := os.WriteFile(l.sub(ownerFile), []byte(keptMark+"\n"), 0o644); err != nil {
		return err
	}
	l.kept = true
	open.remove(l)
	return nil
}

// Close ends every process of the lab and removes all of it. Further calls do nothing.
func (l *Lab) Close() error {
	if l.kept {
		return nil
	}
	var err error
	l.closing.Do(func() {
		_ = l.Each(func(h *Host) error { h.machine.kill(); return nil })
		if l.Outside != nil {
			l.Outside.box.kill()
		}
		if l.Wire != nil {
			l.Wire.box.kill()
		}
		l.cpu = counted(l.id)
		err = remove(l.dir)
		open.remove(l)
	})
	return err
}

// Processors is what the processors have done for a lab that is closed; 0 where nobody counts that.
func (l *Lab) Processors() time.Duration { return l.cpu }
