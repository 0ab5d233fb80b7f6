package ovs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/pulse"
)

// Embedded is an Open vSwitch of the agent's own: ovsdb-server and ovs-vswitchd
// as processes that outlive the agent, so that packets flow while it restarts. The
// next agent adopts them.
type Embedded struct {
	// RunDir is for sockets, pid files and logs; StateDir for the database. They are
	// made if missing, and nobody else's.
	RunDir, StateDir string
	Datapath         Datapath
	// UserspaceTSO turns on segmentation offload in the userspace datapath, which
	// Open vSwitch 3.5 does for the devices used here. Read by ovs-vswitchd at its start.
	UserspaceTSO bool
	// Host is the host's own Open vSwitch, which may run or not; nil: there can be none.
	// As long as it has bridges in the same datapath, ovs-vswitchd is not started.
	Host *Instance
	Log  *slog.Logger // nil: slog.Default()

	mu   sync.Mutex
	down map[string]outage // by daemon

	life    atomic.Int64 // of ovs-vswitchd: grows when one ends and when one begins
	settled atomic.Int64 // one more than the life in which no flows of an earlier one are left
}

// dbSocket is the database's socket in the run directory.
const dbSocket = "db.sock"

// Instance is how to reach the daemons, whether they run or not.
func (e *Embedded) Instance() *Instance { return NewInstance(filepath.Join(e.RunDir, dbSocket)) }

// Run adopts or starts the daemons and starts them again whenever they die, until
// ctx is done. Then it leaves them running.
func (e *Embedded) Run(ctx context.Context) error {
	for _, dir := range []string{e.RunDir, e.StateDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make a directory for Open vSwitch: %w", err)
		}
	}
	server, vswitchd := e.daemons()
	var daemons sync.WaitGroup
	daemons.Go(func() { e.supervise(ctx, server, e.prepareDB) })
	daemons.Go(func() { e.supervise(ctx, vswitchd, e.prepareSwitch) })
	daemons.Wait()
	return nil
}

// Stop ends the daemons, with the bridges of their database first, so that no
// device of theirs is left. Run must have returned.
func (e *Embedded) Stop(ctx context.Context) error {
	server, vswitchd := e.daemons()
	var errs []error
	if vswitchd.find() != nil {
		if _, err := e.Instance().Appctl(ctx, "exit", "--cleanup"); err != nil {
			e.log().Warn("ovs-vswitchd does not clean up", "error", err)
		}
	}
	for _, d := range []daemon{vswitchd, server} {
		if p := d.find(); p != nil {
			errs = append(errs, p.terminate(ctx))
			p.release()
		}
	}
	return errors.Join(errs...)
}

// Abandon ends the daemons and forgets their database. What they have in the kernel's datapath
// stays, for another Open vSwitch to take over or to remove. Run must have returned.
func (e *Embedded) Abandon(ctx context.Context) error {
	server, vswitchd := e.daemons()
	var errs []error
	for _, d := range []daemon{vswitchd, server} {
		if p := d.find(); p != nil {
			errs = append(errs, p.terminate(ctx))
			p.release()
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("end the agent's Open vSwitch: %w", err)
	}
	return errors.Join(os.RemoveAll(e.RunDir), os.RemoveAll(e.StateDir))
}

func (e *Embedded) log() *slog.Logger {
	if e.Log == nil {
		return slog.Default()
	}
	return e.Log
}

func (e *Embedded) dbFile() string { return filepath.Join(e.StateDir, "ovs.db") }

func (e *Embedded) daemons() (server, vswitchd daemon) {
	i := e.Instance()
	make := func(name string, args ...string) daemon {
		args = append(args, "--no-chdir", "--pidfile="+filepath.Join(e.RunDir, name+".pid"),
			"--log-file="+filepath.Join(e.RunDir, name+".log"), "-vconsole:off", "-vsyslog:off")
		return daemon{name: name, args: args, runDir: e.RunDir}
	}
	return make("ovsdb-server", e.dbFile(), "--remote=punix:"+i.DB), make("ovs-vswitchd", "unix:"+i.DB)
}

// supervise keeps one daemon running; prepare runs before each start.
func (e *Embedded) supervise(ctx context.Context, d daemon, prepare func(context.Context) error) {
	pause := 50 * time.Millisecond
	for ctx.Err() == nil {
		p, err := e.up(ctx, d, prepare)
		if err == nil {
			began := time.Now()
			e.note(d, nil)
			err = e.attend(ctx, d, p)
			p.release()
			e.unsettle()
			if ctx.Err() != nil {
				return
			}
			if time.Since(began) > 5*time.Second {
				pause = 50 * time.Millisecond
				e.forgetDown(d)
			}
			err = d.lastWords(err)
		}
		e.note(d, fmt.Errorf("does not come back: %w", err))
		e.log().Warn("Open vSwitch daemon is down, starting it again", "daemon", d.name, "error", err)
		sleep(ctx, pause)
		pause = min(2*pause, 2*time.Second)
	}
}

// lookEvery is how often attend looks whether a daemon's files are there. It acts on what it sees twice.
const lookEvery = 2 * time.Second

// attend waits until the daemon has ended, as process.wait does. One whose files somebody has
// removed, who cleaned up in /run, is ended: nobody can reach it, and only its next life makes them
// again. Where that could not, it goes on as it is.
func (e *Embedded) attend(ctx context.Context, d daemon, p *process) error {
	life, end := context.WithCancel(ctx)
	var look sync.WaitGroup
	defer look.Wait()
	defer end()
	look.Go(func() {
		patience, gone, stuck := 2, 0, false
		if !p.adopted {
			patience = 5 // until it has made them
		}
		for ; life.Err() == nil; sleep(life, pulse.Wait(lookEvery)) {
			file := d.missing(p.pid)
			if file == "" {
				if stuck {
					e.note(d, nil)
				}
				patience, gone, stuck = 2, 0, false
				continue
			}
			gone++
			if err := e.canBegin(); err != nil {
				e.note(d, fmt.Errorf("cannot be reached, since %s is gone, and would not come back: %w", file, err))
				stuck = true
				continue
			}
			if gone < patience {
				continue
			}
			e.log().Warn("somebody has removed a file by which the Open vSwitch daemon is reached: it begins anew", "daemon", d.name, "gone", file)
			if err := unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				e.log().Warn("end the daemon", "daemon", d.name, "error", err)
			}
		}
	})
	return p.wait(ctx)
}

// canBegin says why a daemon that begins could not make its files.
func (e *Embedded) canBegin() error {
	if err := os.MkdirAll(e.RunDir, 0o700); err != nil {
		return fmt.Errorf("make a directory for Open vSwitch: %w", err)
	}
	f, err := os.CreateTemp(e.RunDir, ".room-*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 16<<10))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// up returns the running daemon, adopted or started.
func (e *Embedded) up(ctx context.Context, d daemon, prepare func(context.Context) error) (*process, error) {
	if err := sweepTools(e.RunDir); err != nil {
		e.log().Warn("sockets are left", "error", err)
	}
	if p := d.find(); p != nil {
		e.log().Info("adopted a running Open vSwitch daemon", "daemon", d.name, "pid", p.pid)
		return p, nil
	}
	if err := os.MkdirAll(e.RunDir, 0o700); err != nil {
		return nil, fmt.Errorf("make a directory for Open vSwitch: %w", err)
	}
	if err := e.foreign(ctx); err != nil {
		return nil, err
	}
	if err := d.sweep(); err != nil {
		return nil, err
	}
	if err := prepare(ctx); err != nil {
		return nil, err
	}
	p, err := d.start()
	if err == nil {
		e.log().Info("started an Open vSwitch daemon", "daemon", d.name, "pid", p.pid)
	}
	return p, err
}

// foreign is an error if a database answers at our socket whose process is not in
// sight: that of an agent in another PID namespace.
func (e *Embedded) foreign(ctx context.Context) error {
	server, _ := e.daemons()
	if p := server.find(); p != nil {
		p.release()
		return nil
	}
	if e.Instance().Ping(ctx) == nil {
		return fmt.Errorf("another agent's Open vSwitch answers at %s (that of a service, and this is a plugin, or the other way round?): "+
			"end that agent and its ovs-vswitchd and ovsdb-server", e.Instance().DB)
	}
	return nil
}

// prepareDB makes the database file, or converts one that an older Open vSwitch
// made. What cannot be read is put aside: the database holds nothing that the
// reconcile loop does not write again.
func (e *Embedded) prepareDB(ctx context.Context) error {
	schema, err := findSchema()
	if err != nil {
		return err
	}
	i, file := e.Instance(), e.dbFile()
	if _, err := os.Stat(file); err == nil {
		out, err := i.within(ctx, diskTimeout, nil, "ovsdb-tool", "needs-conversion", file, schema)
		switch {
		case err == nil && string(out) == "no\n":
			return nil
		case err == nil:
			_, err = i.within(ctx, diskTimeout, nil, "ovsdb-tool", "convert", file, schema)
		}
		if err == nil {
			return nil
		}
		// Else the database may be good: the tool was killed, or had no room for its copy.
		if failed := (*exec.ExitError)(nil); !errors.As(err, &failed) || !failed.Exited() || takes(e.StateDir, file) != nil {
			return fmt.Errorf("look at Open vSwitch's database: %w; its disk must be writable and have room", err)
		}
		e.log().Error("Open vSwitch's database is unreadable, starting with a new one", "file", file, "error", err)
		if err := os.Rename(file, file+".unreadable"); err != nil {
			return fmt.Errorf("put aside an unreadable database: %w", err)
		}
	}
	if _, err = i.within(ctx, diskTimeout, nil, "ovsdb-tool", "create", file, schema); err != nil {
		_ = os.Remove(file) // part of one
		return fmt.Errorf("make Open vSwitch's database: %w; its disk must be writable and have room", err)
	}
	return nil
}

// takes reports why dir does not take another file like the given one.
func takes(dir, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".room-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, make([]byte, 64<<10)...))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// prepareSwitch waits for the database and writes what ovs-vswitchd reads only at
// its start.
func (e *Embedded) prepareSwitch(ctx context.Context) error {
	if err := e.Rival(ctx); err != nil {
		return err
	}
	i := e.Instance()
	for n := 0; ; n++ {
		err := i.Ping(ctx)
		if err == nil {
			break
		}
		if n == 100 || ctx.Err() != nil {
			return fmt.Errorf("wait for ovsdb-server: %w", err)
		}
		sleep(ctx, 20*time.Millisecond)
	}
	e.unsettle()
	err := i.initialize(ctx, map[string]string{
		"userspace-tso-enable": strconv.FormatBool(e.UserspaceTSO && e.Datapath == Userspace),
		restoreWait:            strconv.FormatBool(e.Datapath == Kernel),
		staleFlows:             strconv.FormatBool(e.Datapath == Kernel),
	})
	if err != nil {
		return fmt.Errorf("prepare the database of ovs-vswitchd: %w", err)
	}
	if e.Datapath != Kernel {
		return nil
	}
	if err := e.forgetAbsent(ctx); err != nil {
		return err
	}
	return waitUptime(ctx)
}

// restoreWait makes ovs-vswitchd begin by leaving the kernel's flows, and so the
// traffic, as the one before it did, until it is told that its own are in place
// (ovs-vswitchd.conf.db(5)).
const restoreWait = "flow-restore-wait"

// handlersAfter is the uptime from which ovs-vswitchd counts CPUs. Started earlier,
// with the kernel datapath, it has no handler threads and loses every upcall until
// something reconfigures it, so no packet would pass before either.
const handlersAfter = 10500 * time.Millisecond

func waitUptime(ctx context.Context) error {
	var seconds float64
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return fmt.Errorf("read the host's uptime: %w", err)
	}
	if _, err := fmt.Sscan(string(text), &seconds); err != nil {
		return fmt.Errorf("read the host's uptime %q: %w", text, err)
	}
	sleep(ctx, handlersAfter-time.Duration(seconds*float64(time.Second)))
	return ctx.Err()
}

func findSchema() (string, error) {
	paths := []string{"/usr/share/openvswitch/vswitch.ovsschema", "/usr/local/share/openvswitch/vswitch.ovsschema"}
	for _, p := range paths {
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("find the schema of Open vSwitch's database in %q: install openvswitch-switch: %w", paths, os.ErrNotExist)
}
