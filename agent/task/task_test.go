package task

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

// list are a task that only looks, one that runs until it is told to end, and says so, and one without problems.
func list() List {
	wrong := func(context.Context, Look) []api.Problem { return []api.Problem{{What: "it is wrong", Do: "mend it"}} }
	fine := func(context.Context, Look) []api.Problem { return nil }
	return List{
		{Name: "looks", Problems: wrong, Doctor: "one"},
		{Name: "runs", Run: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, Problems: fine, Doctor: "two", Fine: "all well"},
		{Name: "quiet", Run: func(context.Context) error { return nil }},
		{Name: "itself", Problems: wrong},
	}
}

// TestProblems: status has what is wrong with each, in the order of the list, and doctor the same for those that have a subject.
func TestProblems(t *testing.T) {
	if p := list().Problems(t.Context(), Look{}); len(p) != 2 || p[0].What != "it is wrong" {
		t.Errorf("problems: %v", p)
	}
	if p := (List{}).Problems(t.Context(), Look{}); p == nil || len(p) != 0 {
		t.Errorf("of no task: %#v, which is null in JSON", p)
	}
	checks := list().Checks(t.Context(), Look{})
	if len(checks) != 2 || checks[0].Subject != "one" || checks[0].Verdict != api.Wrong || checks[1].Verdict != api.OK || checks[1].What != "all well" {
		t.Errorf("checks: %+v", checks)
	}
	if left := list().Without("looks", "itself").Problems(t.Context(), Look{}); len(left) != 0 {
		t.Errorf("of the others: %v", left)
	}
}

// TestRun: tasks end when they are told to, which is no failure; one that fails ends all, and is named.
func TestRun(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := list().Run(ctx); err != nil {
		t.Errorf("told to end: %v", err)
	}
	fails := append(list(), Task{Name: "fails", Run: func(context.Context) error { return errors.New("no") }})
	if err := fails.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "fails: no") {
		t.Errorf("one has failed: %v", err)
	}
	early := List{{Name: "early", Run: func(context.Context) error { return context.Canceled }}}
	if err := early.Run(t.Context()); err == nil {
		t.Error("one ends though nobody has told it to, and that is no failure")
	}
}
