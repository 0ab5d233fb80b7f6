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
	end := time.Now().Add(within)
	for tries := 1; ; tries++ {
		err := try()
		if err == nil {
			return nil
		}
		if tries > 1 && time.Now().After(end) {
			return fmt.Errorf("not within %s: %w", within, err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}
