package membership

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/membership/backup"
	"github.com/grapevine-net/grapevine/membership/identity"
	"github.com/grapevine-net/grapevine/replica"
)

// killedVar has what a process that is to be killed does, and its directory.
const killedVar = "GRAPEVINE_KILLED"

// TestKilledAtEveryWrite runs an agent's life, from its first start to new gossip keys,
// in a process of its own that is killed as it is about to change its state directory for
// the first time, the second time, and so on to the last: what it had said before is true
// when it is started again, and it is never begun anew.
func TestKilledAtEveryWrite(t *testing.T) {
	if child(t) {
		return
	}
	n, all := 0, false
	for ; !all; n++ {
		dir := filepath.Join(shm(t), "state")
		var said, again []string
		if said, all = killed(t, n, "live "+dir); t.Failed() {
			t.Fatalf("killed at write %d: %v", n, said)
		}
		again, finished := killed(t, -1, "live "+dir)
		if !finished {
			t.Fatalf("killed at write %d: it does not go on: %v", n, again)
		}
		for _, s := range said {
			what, value, _ := strings.Cut(s, " ")
			switch what {
			case "had", "has", "done":
			case "leased":
				if !slices.Contains(again, "has "+value) || slices.Contains(again, "leased "+value) {
					t.Errorf("killed at write %d: %s is not leased any more: %v", n, value, again)
				}
			default:
				if !slices.Contains(again, "had "+s) {
					t.Errorf("killed at write %d: %q was said, and then %v", n, s, again)
				}
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d writes: something else was killed", n)
	}
	t.Logf("killed at %d writes", n-1)
}

// TestRestoreKilledAtEveryWrite: a restore that was killed leaves what is refused, or
// nothing of the host, or all of it.
func TestRestoreKilledAtEveryWrite(t *testing.T) {
	if child(t) {
		return
	}
	from := filepath.Join(shm(t), "state")
	said, _ := killed(t, -1, "live "+from)
	tar := filepath.Join(filepath.Dir(from), "backup")
	if err := writeBackup(from, tar); err != nil {
		t.Fatal(err)
	}
	refused, n, all := 0, 0, false
	for ; !all; n++ {
		dir := filepath.Join(shm(t), "state")
		_, all = killed(t, n, "restore "+dir+" "+tar)
		err := whole(dir)
		if err != nil && !strings.Contains(err.Error(), dir) {
			t.Errorf("killed at write %d: %v", n, err)
		}
		if err != nil {
			refused++
			continue
		}
		id, err := identity.Load(dir)
		_, missing := os.Stat(filepath.Join(dir, stateFile))
		is := slices.Contains(said, "node "+id.Node)
		if err != nil || is != id.Restored || is == (missing != nil) {
			t.Errorf("killed at write %d: the host is that of the backup: %v, restored: %v, state: %v, %v", n, is, id.Restored, missing, err)
		}
		if all && !is {
			t.Error("nothing was restored")
		}
	}
	if refused == 0 {
		t.Error("no half of a restore was refused")
	}
	t.Logf("killed at %d writes, %d refused", n-1, refused)
}

func writeBackup(dir, to string) error {
	db, err := store.Open(filepath.Join(dir, stateFile))
	if err != nil {
		return err
	}
	defer db.Close()
	var b bytes.Buffer
	if err := backup.Write(&b, backup.Manifest{}, dir, db); err != nil {
		return err
	}
	return os.WriteFile(to, b.Bytes(), 0o600)
}

// shm is a directory in memory: that nothing waits for a disk is all that differs.
func shm(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "grapevine-killed-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// child does what killedVar says, if it is set.
func child(t *testing.T) bool {
	words := strings.Fields(os.Getenv(killedVar))
	if len(words) == 0 {
		return false
	}
	var err error
	switch words[0] {
	case "live":
		err = live(words[1])
	case "restore":
		var f *os.File
		if f, err = os.Open(words[2]); err == nil {
			_, err = backup.Restore(f, words[1], false)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	say("done")
	return true
}

// say says something to killed. os.Stdout is not buffered.
func say(format string, args ...any) { fmt.Printf("> "+format+"\n", args...) }

// live opens an agent, says what it has, and has it do one of each thing that it keeps.
func live(dir string) error {
	cfg := settings(1, dir)
	cfg.Bind, cfg.Port = netip.MustParseAddr("127.0.77.250"), 17946
	a := newMember(cfg)
	if err := a.identify(); err != nil {
		return err
	}
	say("had node %s", a.id.Node)
	say("had cluster %s", a.id.Cluster)
	say("had keys %x", sha256.Sum256(a.Keys.Keyring.Keys[0]))
	say("node %s", a.id.Node)
	if err := a.Open(Host{Addr: cfg.Bind}); err != nil {
		return err
	}
	say("cluster %s", a.id.Cluster)
	for _, l := range a.alloc.Leases() {
		say("has %s", l.Addr)
	}
	for n := range cluster.All[cluster.Network](a.replica.Snapshot()) {
		say("had network %s %d", n.Name, n.VNID)
	}
	return handOut(a)
}

// handOut makes a network, leases addresses of it and changes the gossip keys.
func handOut(a *Member) error {
	ctx := context.Background()
	name := fmt.Sprint("n", a.replica.Snapshot().Len())
	p, err := a.alloc.Prefix(ctx, 4, 24, 0)
	if err != nil {
		return err
	}
	vnid, err := a.alloc.VNID(ctx)
	if err != nil {
		return err
	}
	sub, _ := a.alloc.Subnet(p)
	sub.Network = name
	_, err = a.replica.Update(func(tx *replica.Tx) error {
		return errors.Join(tx.Put(cluster.Network{Name: name, VNID: vnid}), tx.Put(sub))
	})
	if err := errors.Join(err, a.alloc.PoolDone(p)); err != nil {
		return err
	}
	say("network %s %d", name, vnid)
	for i := range 3 {
		addr, err := a.alloc.Address(ctx, p, netip.Prefix{}, netip.Addr{})
		if err == nil {
			err = a.alloc.Bind(p, addr, fmt.Sprint("e", i))
		}
		if err != nil {
			return err
		}
		say("leased %s", addr)
	}
	a.Keys.Keyring.Since++
	a.Keys.Keyring.Keys = append([][]byte{bytes.Repeat([]byte{byte(a.Keys.Keyring.Since)}, 32)}, a.Keys.Keyring.Keys...)
	if err := a.Keys.Keyring.Save(a.cfg.State); err != nil {
		return err
	}
	say("keys %x", sha256.Sum256(a.Keys.Keyring.Keys[0]))
	return nil
}

// killed runs this test in a process of its own with killedVar set to what, which is
// killed as it is about to do the write of the given number, the first being 0. It
// returns what the process said, and whether it came to its end before that.
func killed(t *testing.T, number int, what string) (said []string, finished bool) {
	t.Helper()
	runtime.LockOSThread() // ptrace(2) is a thread's
	defer runtime.UnlockOSThread()
	dir := strings.Fields(what)[1]
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), killedVar+"="+what)
	cmd.Stdout, cmd.Stderr = w, w
	cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if err := trace(cmd.Process.Pid, filepath.Dir(dir), number); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if s, ok := strings.CutPrefix(strings.TrimSpace(line), "> "); ok {
			said = append(said, s)
		}
	}
	finished = slices.Contains(said, "done")
	if !finished && number < 0 {
		t.Errorf("%s: %s", what, text)
	}
	return said, finished
}

// trace follows a process that was started with Ptrace to its end, and kills it as one
// of its threads enters the system call that is the write of the given number below dir.
func trace(pid int, dir string, number int) error {
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil {
		return err
	}
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL
	if err := unix.PtraceSetOptions(pid, options); err != nil {
		return err
	}
	inside := map[int]bool{}
	for tid := pid; ; {
		deliver := 0
		switch {
		case !ws.Stopped():
		case ws.StopSignal() == unix.SIGTRAP|0x80:
			if inside[tid] = !inside[tid]; inside[tid] && writes(tid, dir) {
				if number--; number == -1 {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
		case ws.StopSignal() != unix.SIGTRAP && ws.StopSignal() != unix.SIGSTOP:
			deliver = int(ws.StopSignal())
		}
		if ws.Stopped() {
			_ = unix.PtraceSyscall(tid, deliver) // it may be dead
		}
		var err error
		if tid, err = unix.Wait4(-1, &ws, unix.WALL, nil); errors.Is(err, unix.ECHILD) || tid == pid && (ws.Exited() || ws.Signaled()) {
			return nil
		} else if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// writes reports whether the system call that a thread is about to make changes a file
// below dir, or a directory.
func writes(tid int, dir string) bool {
	var regs unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &regs) != nil {
		return false
	}
	switch regs.Orig_rax {
	case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FCHMOD:
		name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, regs.Rdi))
		return err == nil && strings.HasPrefix(name, dir)
	case unix.SYS_OPENAT:
		return regs.Rdx&unix.O_CREAT != 0
	case unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINK, unix.SYS_UNLINKAT, unix.SYS_RMDIR, unix.SYS_MKDIR, unix.SYS_MKDIRAT:
		return true
	}
	return false
}
