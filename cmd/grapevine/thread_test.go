package main

import (
	"os"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// No goroutine but the main one ever runs on the main thread, however many want threads of their own.
func TestMainThread(t *testing.T) {
	const many = 50
	var began, done sync.WaitGroup
	hold := make(chan struct{})
	began.Add(many)
	for range many {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if unix.Gettid() == os.Getpid() {
				t.Error("a goroutine has the main thread")
			}
			began.Done()
			<-hold
		})
	}
	began.Wait()
	close(hold)
	done.Wait()
}
