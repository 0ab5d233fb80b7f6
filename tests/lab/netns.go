package lab

import (
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// netnsThread moves the calling goroutine's thread into a namespace for good. The
// thread is never unlocked, so the runtime ends it with the goroutine.
func netnsThread(path string, f func() (net.Conn, error)) (net.Conn, error) {
	runtime.LockOSThread()
	ns, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the network namespace: %w", err)
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter the network namespace: %w", err)
	}
	return f()
}

// inNetns runs f on a thread that is in the network namespace of process pid.
func inNetns(pid int, f func() (net.Conn, error)) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		conn, err := netnsThread(fmt.Sprintf("/proc/%d/ns/net", pid), f)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}
