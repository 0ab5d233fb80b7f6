package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// Guest is a program's run on an ordinary kernel, which QEMU emulates in software: it has
// the openvswitch module with connection tracking, and a BPF JIT. Everything takes ten to
// thirty times as long there. The program may have labs of namespace hosts.
type Guest struct {
	Tree   string // of scripts/tree: the guest's programs, and those of its hosts
	Kernel string // of scripts/kernel
	// Argv is the program, by its path in the source tree, and its arguments; its working
	// directory is Dir, in the source tree.
	Argv []string
	Dir  string
	// Files are what the guest has of the source tree, besides this process' own program,
	// which is there as bin/ and its name; those with an absolute path are put there.
	Files []string
	// Limit is how long it may take in all.
	Limit time.Duration
	// Stdout and Stderr are the program's; the kernel's own messages go to Stderr, too.
	Stdout, Stderr io.Writer    `json:"-"`
	Progress       func(string) `json:"-"`
}

const (
	guestMemory = "8G" // as a limit: what is not used is not taken
	guestSource = "/grapevine"
	guestSpec   = "/guest.json"
	guestExit   = "exit" // file with the program's exit code
	guestVar    = "GVLAB_GUEST"
)

// InGuest tells whether this process runs in a [Guest].
func InGuest() bool { return os.Getenv(guestVar) != "" }

// Run makes the guest and waits for the program's end; an exit code but 0 is an error. Nothing is left afterwards.
func (g Guest) Run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, g.Limit, fmt.Errorf("the guest was not done within %s", g.Limit))
	defer cancel()
	if err := Clean(false); err != nil {
		return fmt.Errorf("remove what earlier labs left: %w", err)
	}
	l := newLab(Options{Progress: g.Progress})
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := l.makeDir(); err != nil {
		return err
	}
	l.progress("QEMU: the guest's files")
	if err := g.files(ctx, l); err != nil {
		return fmt.Errorf("make the guest's files: %w", err)
	}
	l.progress("QEMU: boot, half a minute")
	code, err := g.boot(ctx, l)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("QEMU: %w", err)
	case code != 0:
		return fmt.Errorf("in the guest: exit status %d", code)
	}
	return nil
}

// pack writes directories one over the other as the kernel unpacks them (initramfs).
// What no program reads is left out, and so is what the guest mounts something on.
const pack = `set -eo pipefail
for dir; do
  (cd "$dir" && find . -xdev \( -path ./usr/share/doc -o -path ./usr/share/man -o -path ./usr/share/locale -o \
    -path ./usr/share/i18n -o -path ./var/cache/apt -o -path ./var/lib/apt -o -path './dev/*' \) -prune -o -print0 |
    cpio --null --create --format=newc --quiet)
done`

func (g Guest) files(ctx context.Context, l *Lab) error {
	own, err := g.ownFiles(l)
	if err != nil {
		return err
	}
	initrd, err := os.Create(l.sub("initrd"))
	if err != nil {
		return err
	}
	defer initrd.Close()
	cmd := exec.CommandContext(ctx, "bash", "-c", pack, "pack", g.Tree, filepath.Join(g.Kernel, "root"), own)
	cmd.Stdout, cmd.Stderr = initrd, g.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("pack them: %w", err)
	}
	return os.RemoveAll(own)
}

// ownFiles is a directory of what the guest has besides the tree and the kernel.
func (g Guest) ownFiles(l *Lab) (string, error) {
	own := l.sub("own")
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	source := filepath.Join(own, guestSource)
	if err := mkdirs(filepath.Join(source, "bin")); err != nil {
		return "", err
	}
	if err := copyFile("/proc/self/exe", filepath.Join(source, "bin", filepath.Base(program))); err != nil {
		return "", err
	}
	if err := os.Symlink(filepath.Join(guestSource, "bin", filepath.Base(program)), filepath.Join(own, "init")); err != nil {
		return "", err
	}
	spec, err := json.Marshal(g)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(own, guestSpec), spec, 0o644); err != nil {
		return "", err
	}
	root, err := ModuleRoot()
	if err != nil {
		return "", err
	}
	for _, file := range append([]string{"go.mod"}, g.Files...) {
		from, to := filepath.Join(root, file), filepath.Join(source, file)
		if filepath.IsAbs(file) {
			from, to = file, filepath.Join(own, file)
		}
		if err := mkdirs(filepath.Dir(to)); err != nil {
			return "", err
		}
		if err := copyTree(from, to); err != nil {
			return "", err
		}
	}
	return own, mkdirs(filepath.Join(source, g.Dir))
}

// boot runs QEMU and returns the exit code of the guest's program. The first serial port
// is the console and the program's standard error, the second its standard output, and
// the third takes its exit code.
func (g Guest) boot(ctx context.Context, l *Lab) (code int, err error) {
	// cx16: after CMPXCHG16B, QEMU 7.2 may give an interrupt wrong flags, and the kernel faults.
	cmd := exec.Command("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max,-cx16",
		"-smp", strconv.Itoa(runtime.NumCPU()), "-m", guestMemory, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-serial", "file:/dev/fd/2", "-serial", "file:/dev/fd/1", "-serial", "file:"+l.sub(guestExit),
		"-kernel", filepath.Join(g.Kernel, "vmlinuz"), "-initrd", l.sub("initrd"),
		"-append", "console=ttyS0 quiet panic=-1 rdinit=/init "+roleVar+"="+roleGuest)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return 0, err
	}
	// It ends with this thread, and so with this process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("%w (scripts/setup bench installs it)", err)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	copied := make(chan error)
	go func() { _, err := io.Copy(g.Stdout, stdout); copied <- err }()
	go func() { _, err := io.Copy(g.Stderr, stderr); copied <- err }()
	err = errors.Join(<-copied, <-copied)
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(l.sub(guestExit))
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Sscan(string(text), &code); err != nil {
		return 0, errors.New("the guest's kernel ended before its program did")
	}
	return code, nil
}
