// Package task is what an agent does and looks after: how it runs, what is wrong with it, and what doctor says of that.
package task

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/diagnose/doctor"
	"github.com/grapevine-net/grapevine/driver/problems"
)

// Task is one thing that an agent does, or looks after.
type Task struct {
	Name string
	Run  func(context.Context) error // nil: there is nothing to do but to look
	// Problems says what is wrong with it, and what to do; nil: nothing ever is.
	Problems func(context.Context, Look) []api.Problem
	// Doctor is the subject under which doctor lists the same problems. "": it finds out by itself.
	Doctor string
	Fine   string // what doctor says where there are none
}

// Look is what problems are looked for in: the same for all tasks.
type Look struct {
	Snapshot *cluster.Snapshot
	Nodes    []api.Node
	Gone     problems.Gone
}

// List are tasks, in the order in which status tells their problems: the most serious first.
type List []Task

// Without are those that are not named.
func (l List) Without(names ...string) List {
	return slices.DeleteFunc(l, func(t Task) bool { return slices.Contains(names, t.Name) })
}

// Problems lists what is wrong with all tasks.
func (l List) Problems(ctx context.Context, look Look) []api.Problem {
	list := []api.Problem{}
	for _, t := range l {
		if t.Problems != nil {
			list = append(list, t.Problems(ctx, look)...)
		}
	}
	return list
}

// Checks are what doctor says of the tasks.
func (l List) Checks(ctx context.Context, look Look) (list []api.Check) {
	for _, t := range l {
		if t.Doctor != "" {
			list = append(list, doctor.Problems(t.Doctor, t.Fine, t.Problems(ctx, look))...)
		}
	}
	return list
}

// Run runs the tasks until one fails or ctx ends.
func (l List) Run(ctx context.Context) error {
	tasks, ctx := errgroup.WithContext(ctx)
	for _, t := range l {
		if t.Run == nil {
			continue
		}
		tasks.Go(func() error {
			// One that says only that it was told to end has not failed: a host that leaves would not come to rest.
			if err := t.Run(ctx); err != nil && (ctx.Err() == nil || !errors.Is(err, context.Canceled)) {
				return fmt.Errorf("%s: %w", t.Name, err)
			}
			return nil
		})
	}
	return tasks.Wait()
}
