package lab

import (
	"cmp"
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
	"strings"
	"syscall"
	"time"
)

// Guest is a program's run on an ordinary kernel, which QEMU emulates in software: it has
// the openvswitch module with connection tracking, and a BPF JIT. Everything takes ten to
// thirty times as long there. The program may have labs of namespace hosts.
type Guest struct {
	// Arch is the guest's architecture by Go's name, amd64 or arm64; "": this machine's. For another one Tree, Kernel, Program and Files are of it.
	Arch   string
	Tree   string // of scripts/tree: the guest's programs, and those of its hosts
	Kernel string // of scripts/kernel
	// Argv is the program, by its path in the source tree, and its arguments; its working
	// directory is Dir, in the source tree.
	Argv []string
	Dir  string
	// Program is the file of a program of this source tree whose TestMain or main begins with [Init] or [Main]: the
	// guest's first process, which is there as bin/ and its name; "": this process' own.
	Program string
	// Files are what the guest has of the source tree, besides that
	// program; those with an absolute path are put there. FROM=TO is FROM under the path TO.
	Files []string
	// Limit is how long it may take in all.
	Limit time.Duration
	// Crowd is the machine's when the guest was made ([Crowd]), of which nothing is seen inside; Run sets it.
	Crowd float64
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

// aroundGuest is the crowd of the machine that emulates this guest.
func aroundGuest() float64 {
	var crowd float64
	_, _ = fmt.Sscan(os.Getenv(guestVar), &crowd)
	return crowd
}

// Run makes the guest and waits for the program's end; an exit code but 0 is an error. Nothing is left afterwards.
func (g Guest) Run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, g.Limit, fmt.Errorf("the guest was not done within %s", g.Limit))
	defer cancel()
	if err := Clean(false); err != nil {
		return fmt.Errorf("remove what earlier labs left: %w", err)
	}
	g.Crowd = Crowd()
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
	program := g.Program
	if program == "" {
		own, err := os.Executable()
		if err != nil {
			return "", err
		}
		program = own
	}
	inGuest := filepath.Join(guestSource, "bin", filepath.Base(program))
	source := filepath.Join(own, guestSource)
	if err := mkdirs(filepath.Join(source, "bin")); err != nil {
		return "", err
	}
	if err := copyFile(cmp.Or(g.Program, "/proc/self/exe"), filepath.Join(own, inGuest)); err != nil {
		return "", err
	}
	if err := os.Symlink(inGuest, filepath.Join(own, "init")); err != nil {
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
		file, as, _ := strings.Cut(file, "=")
		from, to := filepath.Join(root, file), filepath.Join(source, cmp.Or(as, file))
		if filepath.IsAbs(file) {
			from, to = file, filepath.Join(own, cmp.Or(as, file))
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

// emulated is a machine that QEMU emulates, by Go's name of its architecture.
type emulated struct {
	qemu, setup string
	args        []string
	// The terminals that are QEMU's files: the console with the program's standard error, its standard output, and its exit code.
	console, stdout, exit string
}

var machines = map[string]emulated{
	// cx16: after CMPXCHG16B, QEMU 7.2 may give an interrupt wrong flags, and the kernel faults.
	"amd64": {
		"qemu-system-x86_64", "bench", []string{"-cpu", "max,-cx16", "-serial", "file:%s", "-serial", "file:%s", "-serial", "file:%s"},
		"ttyS0", "ttyS1", "ttyS2",
	},
	// pauth-impdef: pointers are signed by a hash that is cheap to emulate.
	"arm64": {
		"qemu-system-aarch64", "arm64", []string{
			"-machine", "virt", "-cpu", "max,pauth-impdef=on", "-serial", "file:%s",
			"-chardev", "file,id=out,path=%s", "-device", "pci-serial,chardev=out", "-chardev", "file,id=exit,path=%s", "-device", "pci-serial,chardev=exit",
		},
		"ttyAMA0", "ttyS0", "ttyS1",
	},
}

// boot runs QEMU and returns the exit code of the guest's program.
func (g Guest) boot(ctx context.Context, l *Lab) (code int, err error) {
	m, known := machines[cmp.Or(g.Arch, runtime.GOARCH)]
	if !known {
		return 0, fmt.Errorf("no machine of the architecture %s: amd64 or arm64", g.Arch)
	}
	// nowatchdog: on a busy machine the kernel finds its clock unstable and patches itself, which QEMU 7.2 may do half.
	args := []string{"-accel", "tcg,thread=multi", "-smp", strconv.Itoa(runtime.NumCPU()), "-m", guestMemory, "-nodefaults", "-no-user-config", "-no-reboot",
		"-display", "none", "-kernel", filepath.Join(g.Kernel, "vmlinuz"), "-initrd", l.sub("initrd"),
		"-append", "console=" + m.console + " quiet panic=-1 tsc=nowatchdog rdinit=/init " + roleVar + "=" + roleGuest}
	files := []string{"/dev/fd/2", "/dev/fd/1", l.sub(guestExit)}
	for _, arg := range m.args {
		if strings.Contains(arg, "%s") {
			arg, files = fmt.Sprintf(arg, files[0]), files[1:]
		}
		args = append(args, arg)
	}
	cmd := exec.Command(m.qemu, args...)
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
		return 0, fmt.Errorf("%w (scripts/setup %s installs it)", err, m.setup)
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
