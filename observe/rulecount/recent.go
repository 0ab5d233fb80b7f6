package rulecount

import (
	"context"
	"time"
)

// fresh is for how long an answer is told again: however often somebody asks, the switch lists its flows once in that time.
const fresh = time.Second

// recent has one answer made at a time, and keeps the last.
type recent[T any] struct {
	turn  chan struct{} // of one place
	now   func() time.Time
	at    time.Time // when value was there; zero: never
	value T
}

func newRecent[T any]() *recent[T] { return &recent[T]{turn: make(chan struct{}, 1), now: time.Now} }

// get is the last answer if it is fresh, or what ask says. An error is not kept.
func (r *recent[T]) get(ctx context.Context, ask func(context.Context) (T, error)) (value T, err error) {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return value, ctx.Err()
	}
	defer func() { <-r.turn }()
	if !r.at.IsZero() && r.now().Sub(r.at) < fresh {
		return r.value, nil
	}
	if value, err = ask(ctx); err == nil {
		r.value, r.at = value, r.now()
	}
	return value, err
}
