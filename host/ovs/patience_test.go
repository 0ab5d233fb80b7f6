package ovs

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestAllFlowsMayTakeLong: what is about all flows of many networks is not given up after a command's time on a machine that is
// busy, by the tool or by who started it; what is about few is.
func TestAllFlowsMayTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const needs = 20 * time.Second
		b := &Bridge{Instance: &Instance{exec: func(ctx context.Context, _ []string, _ []byte, _ string, args ...string) ([]byte, error) {
			own, err := strconv.Atoi(strings.TrimPrefix(args[0], "--timeout="))
			if err != nil {
				t.Fatalf("%q", args)
			}
			ctx, cancel := context.WithTimeout(ctx, time.Duration(own)*time.Second)
			defer cancel()
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(needs):
				return []byte(" cookie=0x1, duration=2.1s, table=0, n_packets=0, n_bytes=0, priority=9,ip actions=drop\n"), nil
			}
		}}}
		if flows, err := b.DumpFlows(t.Context()); err != nil || len(flows) != 1 {
			t.Errorf("all flows: %v, %v", flows, err)
		}
		if _, err := b.DumpFlows(t.Context(), "table=3"); err == nil {
			t.Error("a few flows are waited for as long")
		}
		// A line that only the tool knows.
		lines := make([]string, 20000)
		for i := range lines {
			lines[i] = "add table=3,priority=7,idle_timeout=5,actions=drop"
		}
		if err := b.ApplyBundle(t.Context(), lines); err != nil {
			t.Errorf("many are changed: %v", err)
		}
		if err := b.ApplyBundle(t.Context(), lines[:3]); err == nil {
			t.Error("a change of three is waited for as long")
		}
	})
}
