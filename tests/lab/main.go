package lab

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// open lists this process' labs, for CloseAll.
var open registry

type registry struct {
	mu   sync.Mutex
	labs []*Lab
}

func (r *registry) add(l *Lab) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.labs = append(r.labs, l)
}

func (r *registry) remove(l *Lab) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.labs = slices.DeleteFunc(r.labs, func(o *Lab) bool { return o == l })
}

// CloseAll closes every lab of this process.
func CloseAll() error {
	open.mu.Lock()
	labs := slices.Clone(open.labs)
	open.mu.Unlock()
	var errs []error
	for _, l := range labs {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Main is the TestMain of a package that uses the lab. It closes all labs at the
// end, and when the tests are interrupted.
func Main(m interface{ Run() int }) {
	Init()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ended := context.AfterFunc(ctx, func() {
		_ = CloseAll()
		os.Exit(130)
	})
	code := m.Run()
	if !ended() {
		select {} // interrupted: the function above exits
	}
	stop()
	if err := CloseAll(); err != nil {
		os.Stderr.WriteString("close the labs: " + err.Error() + "\n")
		code = max(code, 1)
	}
	os.Exit(code)
}
