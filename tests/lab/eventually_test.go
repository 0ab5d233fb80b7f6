package lab

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A try that takes longer than there is time is not the only one; otherwise the time counts.
func TestEventually(t *testing.T) {
	for _, c := range []struct {
		takes   time.Duration
		worksAt int // the try that works
		tries   int
		ok      bool
	}{
		{time.Minute, 2, 2, true},
		{time.Minute, 3, 2, false},
		{time.Millisecond, 1, 1, true},
		{400 * time.Millisecond, 3, 3, true},
		{400 * time.Millisecond, 9, 3, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			wrong, tries := errors.New("wrong"), 0
			err := Eventually(t.Context(), time.Second, func() error {
				time.Sleep(c.takes)
				if tries++; tries == c.worksAt {
					return nil
				}
				return wrong
			})
			if tries != c.tries || c.ok != (err == nil) || err != nil && !errors.Is(err, wrong) {
				t.Errorf("%+v: %d tries, %v", c, tries, err)
			}
		})
	}
}

func TestEventuallyEndsWithItsContext(t *testing.T) {
	wrong := errors.New("wrong")
	ctx, cancel := context.WithCancel(t.Context())
	if err := Eventually(ctx, time.Hour, func() error { cancel(); return wrong }); !errors.Is(err, wrong) {
		t.Error(err)
	}
}
