package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// guestMain is the first process of a guest: it runs the program and ends QEMU.
func guestMain() error {
	code, err := guestRun()
	if err != nil {
		fmt.Fprintf(os.Stderr, "guest: %v\n", err)
		code = 1
	}
	if err := say("/dev/"+machines[runtime.GOARCH].exit, fmt.Sprintln(code)); err != nil {
		return err
	}
	return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// say writes to a terminal; it returns when all of it is written.
func say(name, text string) error {
	tty, err := rawTTY(name)
	if err != nil {
		return err
	}
	if _, err := tty.WriteString(text); err != nil {
		return err
	}
	return drain(tty)
}

// drain is tcdrain(3).
func drain(tty *os.File) error { return unix.IoctlSetInt(int(tty.Fd()), unix.TCSBRK, 1) }

func guestRun() (code int, err error) {
	clearEnv()
	if err := guestRoot(); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(guestSpec)
	if err != nil {
		return 0, err
	}
	var g Guest
	if err := json.Unmarshal(text, &g); err != nil {
		return 0, err
	}
	stderr, err := rawTTY("/dev/" + machines[runtime.GOARCH].console)
	if err != nil {
		return 0, err
	}
	stdout, err := rawTTY("/dev/" + machines[runtime.GOARCH].stdout)
	if err != nil {
		return 0, err
	}
	if err := unix.Sethostname([]byte("guest")); err != nil {
		return 0, err
	}
	cmd := exec.Command(filepath.Join(guestSource, g.Argv[0]), g.Argv[1:]...)
	cmd.Dir = filepath.Join(guestSource, g.Dir)
	cmd.Env = append(os.Environ(), guestVar+"="+fmt.Sprint(max(1, g.Crowd)))
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err = cmd.Run()
	if err := errors.Join(drain(stdout), drain(stderr)); err != nil {
		return 0, err
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(1, exit.ExitCode()), nil
	}
	return 0, err
}

// guestRoot mounts what a root file system has. The kernel's own one cannot be moved or
// pivoted, as hosts do with theirs: a second mount of it goes over it.
func guestRoot() error {
	const root = "/newroot"
	m := &mounter{root: root}
	m.mkdir("/", root)
	m.bind("/", "")
	m.mkdir(root, "proc", "sys", "dev", "run", "tmp")
	m.at("proc", "/proc", "proc")
	m.at("sysfs", "/sys", "sysfs")
	m.at("cgroup2", "/sys/fs/cgroup", "cgroup2")
	m.at("devtmpfs", "/dev", "devtmpfs")
	m.mkdir(root, "dev/pts", "dev/shm")
	m.at("devpts", "/dev/pts", "devpts")
	m.at("tmpfs", "/dev/shm", "tmpfs")
	m.at("tmpfs", "/run", "tmpfs")
	if m.err != nil {
		return m.err
	}
	if err := unix.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root's mount: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Chdir("/")
}

// rawTTY opens a terminal that passes bytes on as they are.
func rawTTY(name string) (*os.File, error) {
	tty, err := os.OpenFile(name, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err == nil {
		t.Oflag &^= unix.OPOST
		err = unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, t)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return tty, nil
}
