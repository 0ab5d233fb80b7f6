package ovs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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

// TestSlowDisk: a disk that takes seconds for the database's file, as SD cards do, is waited for.
func TestSlowDisk(t *testing.T) {
	tool, err := find("ovsdb-tool")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	slow := fmt.Sprintf("#!/bin/sh\nsleep 7\nexec %s \"$@\"\n", tool)
	if err := os.WriteFile(filepath.Join(dir, "ovsdb-tool"), []byte(slow), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	e := &Embedded{StateDir: t.TempDir(), RunDir: t.TempDir()}
	if err := e.prepareDB(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestSaysThatItWaited: what is ended since it took too long says that, and not only that it was killed.
func TestSaysThatItWaited(t *testing.T) {
	i := &Instance{exec: run}
	_, err := i.within(t.Context(), 0, nil, "sleep", "60")
	if err == nil || !strings.Contains(err.Error(), "not come to its end after 1s") {
		t.Error(err)
	}
}
