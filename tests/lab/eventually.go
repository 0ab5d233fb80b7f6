package lab

import (
	"context"
	"fmt"
	"time"
)

// Eventually tries until it works or the time is over; twice at least, since a try may
// take longer than that (Docker's resolver, 4 s), and is about what was when it began.
// If ctx ends it returns the last error.
func Eventually(ctx context.Context, within time.Duration, try func() error) error {
	begin := time.Now()
	end := begin.Add(within)
	for tries := 1; ; tries++ {
		err := try()
		if err == nil {
			return nil
		}
		if tries > 1 && time.Now().After(end) {
			return fmt.Errorf("not within %s: %w", within, err)
		}
		select {
		case <-time.After(pause(time.Since(begin))):
		case <-ctx.Done():
			return err
		}
	}
}

// pause is how long nothing is tried, after so long a wait: a try starts programs, which takes the processors from
// what is waited for, and what has taken seconds may be seen a quarter later.
func pause(waited time.Duration) time.Duration {
	return min(max(waited/4, 100*time.Millisecond), time.Second)
}
