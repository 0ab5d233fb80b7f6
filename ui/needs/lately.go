package needs

import (
	"context"
	"sync"
	"time"
)

// patience is how many times as long as an answer took it is good for: a page that is open costs the agent a tenth of a
// processor at the most, and sees what is small at once.
const patience = 10

// oldest bounds that: an answer that took long because its agent hung would be good for minutes.
const oldest = 10 * time.Second

// lately asks, and returns the last answer as long as that is good. Who asks while somebody does waits for that answer.
func lately[T any](ask func(context.Context) (T, error)) func(context.Context) (T, error) {
	var mu sync.Mutex
	var last T
	var good time.Time
	return func(ctx context.Context) (T, error) {
		mu.Lock()
		defer mu.Unlock()
		began := time.Now()
		if began.Before(good) {
			return last, nil
		}
		value, err := ask(ctx)
		if err != nil {
			return value, err
		}
		now := time.Now()
		last, good = value, now.Add(min(oldest, patience*now.Sub(began)))
		return value, nil
	}
}
