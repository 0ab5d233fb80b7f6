package standin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/host/plugin"
	"github.com/grapevine-net/grapevine/host/socket"
)

// Docker tries each call to a driver that nobody answers for 15 s, and makes four of them to remove one
// container. So an agent that ends while containers are attached leaves a deputy: a process that, if no agent comes, makes
// the socket, knows nothing, and answers. What Docker removes is gone: the next agent finds that Docker has it no more. What
// Docker wants made waits for the next agent, as long as Docker itself would, and then fails with a word that says
// why. The deputy goes as soon as an agent comes.

const (
	// deputyAfter is how long nobody answers, as ever: an agent that is started anew at once gets all calls.
	deputyAfter = 3 * time.Second
	// makingWait is how long after the agent's end what is to be made waits for the next one.
	makingWait = 15 * time.Second
	// giveWay is the call at which a deputy ends. An agent answers that there is no such call.
	giveWay = "GiveWay"
	// agentProgram is the name of processes that call and hang up without a word, to see whether an agent runs: agents of
	// versions that do not say giveWay.
	agentProgram = "grapevine"
	// pathEvery is how often a deputy looks whether its socket can still be reached, and whether containers are attached.
	pathEvery = 5 * time.Second
	// lonely is how long it stays when no container is attached any more: who removes containers removes their networks
	// next.
	lonely = time.Minute
)

// Leave has command, which runs [Deputise], answer Docker from now on, if Docker may call while no agent runs: if any container is attached. An
// agent that never was of use to Docker leaves none, unless it took one's place.
func Leave(command []string, attached func() (bool, error), log *slog.Logger) {
	there, err := attached()
	if id, managed := plugin.ManagedID(); err != nil || !there || len(command) == 0 || managed != nil || id != "" {
		return
	}
	deputy := exec.Command(command[0], command[1:]...)
	deputy.Dir, deputy.Env = "/", []string{"GOGC=10"}
	deputy.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := deputy.Start(); err != nil {
		log.Warn("nobody answers Docker until the next agent starts: what it removes meanwhile takes a minute", "err", err)
	}
}

// Deputise is the deputy: it answers Docker at the agent's socket, unless an agent is there again, until one comes, or until ctx ends.
func Deputise(ctx context.Context, path string, attached func() (bool, error)) error {
	began := time.Now()
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(deputyAfter):
	}
	if there, err := attached(); err != nil || !there { // somebody has cleaned up
		return err
	}
	l, err := socket.Claim(path)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("answer Docker in an agent's place: %w", err)
	}
	return deputise(ctx, l, path, began, vigil{agents: agentProgram, attached: attached, every: pathEvery, lonely: lonely})
}

// vigil is what a deputy goes by.
type vigil struct {
	agents        string               // the name of agents' processes
	attached      func() (bool, error) // whether any container is
	every, lonely time.Duration
}

func deputise(ctx context.Context, l *net.UnixListener, path string, began time.Time, v vigil) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := &deputy{UnixListener: l, agents: v.agents, over: cancel}
	made, err := os.Lstat(path)
	if err != nil {
		return errors.Join(fmt.Errorf("look for the agent's socket: %w", err), l.Close())
	}
	failed := make(chan error, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		failed <- d.server(began).Serve(context.WithoutCancel(ctx), d)
	}()
	defer func() { // the server hangs up on all: those whom it has not answered call again, and reach the agent
		_ = l.Close()
		<-over
	}()
	look := time.NewTicker(v.every)
	defer look.Stop()
	for needed := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-look.C:
			is, err := os.Lstat(path)
			if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(made, is) {
				return nil
			}
			if attached, err := v.attached(); attached || err != nil {
				needed = time.Now()
			} else if time.Since(needed) >= v.lonely {
				return nil
			}
		}
	}
}

// deputy is its socket, and who has called.
type deputy struct {
	*net.UnixListener
	agents string // the name of agents' processes
	over   func()
}

// server answers Docker's calls.
func (d *deputy) server(began time.Time) *plugin.Server {
	s := plugin.New(slog.New(slog.DiscardHandler))
	describe(s)
	answer := func(wait time.Duration, err error) func(context.Context) (*driver.Empty, error) {
		return func(ctx context.Context) (*driver.Empty, error) {
			select {
			case <-ctx.Done(): // nobody waits for the answer
			case <-time.After(time.Until(began.Add(wait))):
			}
			return &driver.Empty{}, err
		}
	}
	absent := errors.New("the agent of grapevine does not run on this host: start it (systemctl start grapevine)")
	handle(s, makingCalls, answer(makingWait, absent))
	handle(s, removalCalls, answer(0, nil))
	plugin.HandleNoBody(s, plugin.Network, giveWay, func(context.Context) (*driver.Empty, error) {
		d.over()
		return &driver.Empty{}, nil
	})
	return s
}

// Accept implements net.Listener.
func (d *deputy) Accept() (net.Conn, error) {
	c, err := d.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return &client{Conn: c, of: d, agent: socket.Peer(c) == d.agents}, nil
}

// client is a connection to a deputy.
type client struct {
	net.Conn
	of    *deputy
	agent bool // it is an agent's
	spoke atomic.Bool
}

// Read implements net.Conn.
func (c *client) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	switch {
	case n > 0:
		c.spoke.Store(true)
	case err != nil && c.agent && !c.spoke.Load():
		c.of.over()
	}
	return n, err
}

// Dismiss has a deputy that answers at path give way, and reports whether there was one. An agent does not heed it.
func Dismiss(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://plugin/"+string(plugin.Network)+"."+giveWay, http.NoBody)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil { // it has hung up, or nobody is there: awaiting silence is for whoever listens next
		dial, is := errors.AsType[*net.OpError](err)
		return !is || dial.Op != "dial"
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}
