package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ownerFile, in a lab's directory (and below its tmpfs), names the process that
// the lab belongs to: its PID and the time it started, in clock ticks since boot.
const (
	ownerFile = "owner"
	keptMark  = "kept" // in its place: the lab belongs to nobody
)

func register(dir string) error { return record(filepath.Join(dir, ownerFile), os.Getpid()) }

// record writes a process' PID and the time it started to a file.
func record(file string, pid int) error {
	name := strconv.Itoa(pid)
	start, err := startTime(name)
	if err != nil {
		return fmt.Errorf("find out when process %d started: %w", pid, err)
	}
	// Whole or not at all: half a line would name a process that is dead.
	if err := os.WriteFile(file+".new", []byte(name+" "+start+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// startTime is field 22 of /proc/PID/stat (proc(5)); with the PID it names a
// process for good.
func startTime(pid string) (string, error) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "", err
	}
	_, after, _ := strings.Cut(string(text), ") ") // the name before may hold anything
	fields := strings.Fields(after)
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%s/stat has %d fields after the name, want 20 or more", pid, len(fields))
	}
	return fields[19], nil
}

// Clean removes labs whose owner is dead, and with kept also those that were kept. Those of
// running processes stay: Remove takes them by name.
func Clean(kept bool) error {
	entries, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var errs []error
	for _, e := range entries {
		dir := filepath.Join(base, e.Name())
		if state := ownerState(dir); state == "dead" || kept && state == keptMark {
			errs = append(errs, remove(dir))
		}
	}
	return errors.Join(append(errs, err)...)
}

// Remove removes labs by their IDs, whoever they belong to.
func Remove(ids ...string) error {
	var errs []error
	for _, id := range ids {
		if id != filepath.Base(id) || id == "." || id == ".." {
			errs = append(errs, fmt.Errorf("%q is not the ID of a lab", id))
			continue
		}
		errs = append(errs, remove(filepath.Join(base, id)))
	}
	return errors.Join(errs...)
}

// ownerState is alive, dead or kept. A directory without an owner is younger
// than a moment, or has lost it: alive for the first minute.
func ownerState(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if err != nil {
		if info, statErr := os.Stat(dir); statErr == nil && time.Since(info.ModTime()) > time.Minute {
			return "dead"
		}
		return "alive"
	}
	pid, start, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if pid == keptMark {
		return pid
	}
	if now, err := startTime(pid); err == nil && now == start {
		return "alive"
	}
	return "dead"
}

// remove ends what still runs in a lab and takes its directory and cgroups away.
func remove(dir string) error {
	for _, pid := range boxPIDs(dir) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // gone is as good
		awaitEnd(pid)
	}
	if err := removePluginCgroups(dir); err != nil {
		return err
	}
	if err := unmountAll(dir); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the lab's directory: %w", err)
	}
	_ = os.Remove(base) // the last lab takes it away; others still use it
	return removeMeters(filepath.Base(dir))
}

// unmountAll unmounts the lab's tmpfs, however often it was mounted.
func unmountAll(dir string) error {
	for {
		err := unix.Unmount(dir, unix.MNT_DETACH)
		if err == unix.EINVAL || err == unix.ENOENT { // not a mount point
			return nil
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", dir, err)
		}
	}
}

func awaitEnd(pid int) {
	for range 200 {
		if syscall.Kill(pid, 0) != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// boxPIDs are the first processes of a lab's boxes that still run.
func boxPIDs(dir string) []int {
	var pids []int
	files, _ := filepath.Glob(filepath.Join(dir, "*", pidFile)) // the pattern is well formed
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		pid, start, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		if now, err := startTime(pid); err != nil || now != start {
			continue
		}
		if n, err := strconv.Atoi(pid); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}
