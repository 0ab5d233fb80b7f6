package lab

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// netnsThread moves the calling goroutine's thread into a namespace for good. The
// thread is never unlocked, so the runtime ends it with the goroutine.
func netnsThread(path string) error {
	runtime.LockOSThread()
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open the network namespace: %w", err)
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	return nil
}

// inNetns runs f on a thread that is in the network namespace of process pid, or for 0 where we are. The sockets that f
// makes stay there.
func inNetns[T any](pid int, f func() (T, error)) (T, error) {
	if pid == 0 {
		return f()
	}
	type result struct {
		made T
		err  error
	}
	done := make(chan result)
	go func() {
		var r result
		if r.err = netnsThread(fmt.Sprintf("/proc/%d/ns/net", pid)); r.err == nil {
			r.made, r.err = f()
		}
		done <- r
	}()
	r := <-done
	return r.made, r.err
}
