package ovs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// DefaultSocket is where distributions put the database's socket.
const DefaultSocket = "/var/run/openvswitch/db.sock"

// commandTimeout bounds every command. One that waits for ovs-vswitchd succeeds if
// that comes back within the time.
const commandTimeout = 5 * time.Second

// flowsTimeout bounds what is about all flows. A thousand networks are 20,000 of them, which a machine that is busy fifty times over
// needs more than commandTimeout for: a host would never know its switch, and no container start. Of a switch that hangs somebody else tells.
const flowsTimeout = 30 * time.Second

// diskTimeout bounds what writes the database's file and waits until it is on the disk, before any daemon runs: on an SD card beside
// other work that takes seconds, and what is ended and begun again never comes to its end.
const diskTimeout = time.Minute

// Instance is one running Open vSwitch. Its methods may be called concurrently.
type Instance struct {
	// RunDir holds the sockets: <bridge>.mgmt, ovs-vswitchd.<pid>.ctl, and the pid files.
	RunDir string
	// DB is the path of the database's socket.
	DB string
	// exec runs a command; tests replace it.
	exec func(ctx context.Context, env []string, stdin []byte, name string, args ...string) ([]byte, error)
}

// NewInstance returns the Open vSwitch whose database listens at the socket; the
// other sockets are in the same directory. Nothing is contacted.
func NewInstance(dbSocket string) *Instance {
	return &Instance{RunDir: filepath.Dir(dbSocket), DB: dbSocket, exec: run}
}

// FindHost returns the host's own Open vSwitch, if its database answers at the
// socket ("" for DefaultSocket).
func FindHost(ctx context.Context, dbSocket string) (*Instance, error) {
	if dbSocket == "" {
		dbSocket = DefaultSocket
	}
	i := NewInstance(dbSocket)
	if err := i.Ping(ctx); err != nil {
		return nil, fmt.Errorf("find the host's Open vSwitch at %s: %w", dbSocket, err)
	}
	return i, nil
}

// Ping says whether the database answers and is Open vSwitch's. The error wraps
// os.ErrNotExist if there is no socket.
func (i *Instance) Ping(ctx context.Context) error {
	c, err := i.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	var dbs []string
	if err := c.call(ctx, "list_dbs", []any{}, &dbs); err != nil {
		return fmt.Errorf("list databases at %s: %w", i.DB, err)
	}
	for _, db := range dbs {
		if db == dbName {
			return nil
		}
	}
	return fmt.Errorf("the database server at %s has no %s database but %q", i.DB, dbName, dbs)
}

// Appctl runs a command of ovs-vswitchd as ovs-appctl does, and returns what that would print.
// ovs-appctl itself takes the pid file of a process that it does not see, as in the managed
// plugin the host's own, for a stale one, and deletes it.
func (i *Instance) Appctl(ctx context.Context, command string, args ...string) ([]byte, error) {
	c, err := i.control(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	defer c.close()
	var said string
	if err := c.call(ctx, command, append([]string{}, args...), &said); err != nil {
		return nil, err
	}
	return []byte(said), nil
}

func (i *Instance) ofctl(ctx context.Context, limit time.Duration, stdin []byte, args ...string) ([]byte, error) {
	args = append([]string{fmt.Sprintf("--timeout=%.0f", limit.Seconds()), "-O", "OpenFlow14", "--no-names"}, args...)
	return i.within(ctx, limit, stdin, "ovs-ofctl", args...)
}

func (i *Instance) command(ctx context.Context, stdin []byte, name string, args ...string) ([]byte, error) {
	return i.within(ctx, commandTimeout, stdin, name, args...)
}

func (i *Instance) within(ctx context.Context, limit time.Duration, stdin []byte, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+time.Second)
	defer cancel()
	out, err := i.exec(ctx, []string{"OVS_RUNDIR=" + i.RunDir}, stdin, name, args...)
	if err != nil && ctx.Err() == context.DeadlineExceeded {
		err = fmt.Errorf("it had not come to its end after %v: %w", limit+time.Second, err) // by itself it says: signal: killed
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return out, nil
}

// run is Instance.exec in earnest. The error quotes what the command said.
func run(ctx context.Context, env []string, stdin []byte, name string, args ...string) ([]byte, error) {
	path, err := find(name)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if said := strings.TrimSpace(stderr.String()); said != "" {
			return nil, fmt.Errorf("%w: %s", err, said)
		}
		return nil, err
	}
	return stdout.Bytes(), nil
}

// find looks for a program in PATH and where distributions put daemons.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/lib/openvswitch-switch"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find %s: install the package openvswitch-switch: %w", name, errors.Join(err, os.ErrNotExist))
}

// dialUnix connects to a socket; no listener and no file are both os.ErrNotExist.
func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to Open vSwitch: %w", err)
	}
	return c, nil
}
