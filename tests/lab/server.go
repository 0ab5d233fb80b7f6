package lab

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// server runs commands in the box it was started in.
type server struct {
	mu      sync.Mutex
	daemons map[string]*daemon
}

type daemon struct {
	process *os.Process
	ended   chan struct{} // closed when it is reaped
	end     string        // then: how it ended
}

// serve answers requests until the listener fails.
func serve(l net.Listener) error {
	s := &server{daemons: map[string]*daemon{}}
	for {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go s.handle(conn)
	}
}

func (s *server) handle(conn net.Conn) {
	defer conn.Close()
	var req request
	if err := gob.NewDecoder(conn).Decode(&req); err != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // the client sends nothing more: the read ends when it goes away
		_, _ = conn.Read(make([]byte, 1))
		cancel()
	}()
	out := &replies{enc: gob.NewEncoder(conn)}
	last := s.answer(ctx, req, out)
	last.Done = true
	out.send(last)
}

func (s *server) answer(ctx context.Context, req request, out *replies) reply {
	var last reply
	var err error
	switch req.Op {
	case opRun:
		last.Exit, err = run(ctx, req, out)
	case opStart:
		err = s.start(req)
	case opSignal:
		last.Running, last.End, err = s.signal(req)
	case opGet:
		err = s.get(ctx, req)
	case opAsk:
		last.Exit, last.Stdout, err = askDaemon(ctx, req)
	case opInside:
		last = inside(ctx, req)
	default:
		err = fmt.Errorf("unknown operation %q", req.Op)
	}
	if err != nil {
		last.Err = err.Error()
	}
	return last
}

func run(ctx context.Context, req request, out *replies) (int, error) {
	cmd := command(ctx, req)
	cmd.Stdin = newReader(req.Stdin)
	cmd.Stdout = stream{out, func(p []byte) reply { return reply{Stdout: p} }}
	cmd.Stderr = stream{out, func(p []byte) reply { return reply{Stderr: p} }}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // a daemon it left behind may hold its output open
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		return cmd.ProcessState.ExitCode(), nil
	}
	return 0, err
}

func command(ctx context.Context, req request) *exec.Cmd {
	cmd := exec.CommandContext(ctx, req.Argv[0], req.Argv[1:]...)
	cmd.Env = append(os.Environ(), req.Env...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// start starts a daemon; one of the same name must not be running.
func (s *server) start(req request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.daemons[req.Name]; d != nil && d.running() {
		return fmt.Errorf("%s is running already", req.Name)
	}
	log, err := os.OpenFile(req.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", req.Name, err)
	}
	defer log.Close()
	cmd := command(context.Background(), req)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", req.Name, err)
	}
	d := &daemon{process: cmd.Process, ended: make(chan struct{})}
	s.daemons[req.Name] = d
	go func() {
		_ = cmd.Wait() // its end is what matters, and its log says why
		d.end = cmd.ProcessState.String()
		close(d.ended)
	}()
	return nil
}

func (d *daemon) running() bool {
	select {
	case <-d.ended:
		return false
	default:
		return true
	}
}

// signal sends req.Sig and waits up to req.Wait for the daemon's end.
func (s *server) signal(req request) (running bool, end string, err error) {
	s.mu.Lock()
	d := s.daemons[req.Name]
	s.mu.Unlock()
	if d == nil {
		return false, "", nil
	}
	if !d.running() {
		return false, d.end, nil
	}
	if req.Sig != 0 {
		pid := d.process.Pid
		if req.Group {
			pid = -pid
		}
		if err := syscall.Kill(pid, req.Sig); err != nil && err != syscall.ESRCH {
			return true, "", fmt.Errorf("signal %s: %w", req.Name, err)
		}
	}
	select {
	case <-d.ended:
	case <-time.After(req.Wait):
	}
	if d.running() {
		return true, "", nil
	}
	return false, d.end, nil
}
