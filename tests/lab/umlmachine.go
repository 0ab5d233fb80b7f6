package lab

import (
	"context"
	_ "embed" // the source of the preloaded library
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// umlMachine is a host with a User-Mode Linux kernel of its own. The kernel is a
// daemon of the wire's box, its NIC a veth to the bridge, its disk an ext4 image.
type umlMachine struct {
	host *Host
	box  *box // its server, behind TCP
}

const (
	umlMemory  = "1G"
	umlDisk    = 8 << 30 // bytes, sparse
	umlModules = "/usr/lib/uml/modules"
	umlPort    = 7                // TCP, of the server
	umlBoot    = 10 * time.Second // with patience
)

func (m *umlMachine) server() *box   { return m.box }
func (m *umlMachine) daemon() string { return "uml-" + m.host.Name }
func (m *umlMachine) console() string {
	return filepath.Join(m.host.logDir(), "console.log")
}

// kill is a power loss: what the kernel had not yet written to its disk is gone.
func (m *umlMachine) kill() {
	if m.box == nil {
		return
	}
	req := request{Op: opSignal, Name: m.daemon(), Sig: syscall.SIGKILL, Group: true, Wait: 5 * time.Second}
	_, _, _, _ = m.host.lab.Wire.box.do(context.Background(), req) // the wire's end is its end, too
	m.box = nil
}

func (m *umlMachine) boot(ctx context.Context) error {
	if err := m.prepare(ctx); err != nil {
		return err
	}
	wire := m.host.lab.Wire.box
	start := request{Op: opStart, Name: m.daemon(), Argv: m.kernel(), Log: m.console()}
	if pre, err := m.host.lab.preload(ctx); err != nil {
		return err
	} else if pre != "" {
		start.Env = []string{"LD_PRELOAD=" + pre}
	}
	start.Env = append(start.Env, "TMPDIR=/dev/shm")
	if _, _, _, err := wire.do(ctx, start); err != nil {
		return err
	}
	m.box = &box{name: m.host.Name, dir: m.host.dir(), dialer: m.dial, why: m.became}
	err := m.awaitServer(ctx)
	if err == nil {
		err = m.growUMLBuffer()
	}
	if err != nil {
		m.kill()
	}
	return err
}

// kernel is the command line of the kernel: its root file system is the machine's,
// read-only, and its first process this program in the role of roleUML.
func (m *umlMachine) kernel() []string {
	l := m.host.lab
	return []string{
		"taskset", "-c", strconv.Itoa((m.host.n - 1) % runtime.NumCPU()), "linux.uml", "mem=" + umlMemory, "quiet", "con0=null,fd:1", "con=null",
		"root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
		"ubd0=" + filepath.Join(m.host.dir(), "disk.img"),
		umlNIC(m.host.Name),
		"init=" + filepath.Join(l.share(), "bin/labhost"),
		roleVar + "=" + roleUML, specVar + "=" + m.specFile(),
	}
}

func (m *umlMachine) specFile() string { return filepath.Join(m.host.dir(), "uml.json") }

// prepare makes the disk and the NIC at the first boot, and the first process' orders.
func (m *umlMachine) prepare(ctx context.Context) error {
	l, h := m.host.lab, m.host
	disk := filepath.Join(h.dir(), "disk.img")
	if _, err := os.Stat(disk); os.IsNotExist(err) {
		if err := os.MkdirAll(h.dir(), 0o755); err != nil {
			return err
		}
		if err := l.makeDisk(ctx, disk); err != nil {
			return err
		}
		if err := l.Wire.plugUML(ctx, h.Name, l.opts.MTU); err != nil {
			return err
		}
	}
	spec := boxSpec{Hostname: h.Name, Root: &rootSpec{
		Lower: "/", State: "/mnt/disk", Mount: "/mnt/root", Share: l.share(), UML: true, Modules: l.opts.Modules,
	}}
	spec.Net.IP = append([]string{fmt.Sprintf("link set vec0 name eth0 mtu %d", l.opts.MTU)}, hostNet(h.n)...)
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return os.WriteFile(m.specFile(), text, 0o644)
}

func (l *Lab) makeDisk(ctx context.Context, name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Truncate(umlDisk); err != nil {
		return err
	}
	argv := []string{"-q", "-E", "lazy_itable_init=1,nodiscard"}
	if !l.bare {
		argv = append(argv, "-d", l.begin)
	}
	out, err := exec.CommandContext(ctx, "mkfs.ext4", append(argv, name)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	return nil
}

func (m *umlMachine) dial(ctx context.Context) (net.Conn, error) {
	at := net.JoinHostPort(hostAddr4(m.host.n), strconv.Itoa(umlPort))
	return inNetns(m.host.lab.Wire.box.pid(), func() (net.Conn, error) {
		return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp4", at)
	})
}

// awaitServer waits for the kernel to boot, or to panic.
func (m *umlMachine) awaitServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, umlBoot*m.host.lab.opts.Patience())
	defer cancel()
	for {
		err := m.box.ready(ctx)
		if err == nil {
			return nil
		}
		last, _, _, asked := m.host.lab.Wire.box.do(ctx, request{Op: opSignal, Name: m.daemon()})
		if asked != nil || !last.Running || ctx.Err() != nil {
			return fmt.Errorf("the kernel did not come up: %w; its console:\n%s", err, console(m.console()))
		}
		time.Sleep(100 * time.Millisecond)
	}
}

//go:embed uml/ptrace.c
var preloadSource string

// preload is the library that uml/ptrace.c explains, "" where it is not needed.
func (l *Lab) preload(ctx context.Context) (string, error) {
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	if !strings.Contains(string(cpu), " amx_tile") {
		return "", nil
	}
	l.preloadOnce.Do(func() {
		l.preloadFile = l.sub("ptrace.so")
		cmd := exec.CommandContext(ctx, "cc", "-O2", "-shared", "-fPIC", "-x", "c", "-o", l.preloadFile, "-")
		cmd.Stdin = strings.NewReader(preloadSource)
		if out, err := cmd.CombinedOutput(); err != nil {
			l.preloadErr = fmt.Errorf("compile uml/ptrace.c (scripts/setup installs a compiler): %w: %s", err, out)
		}
	})
	return l.preloadFile, l.preloadErr
}

// became says whether the kernel goes on, or how it ended, and the end of what it said: of one that stands still, or
// has ended, nothing else tells.
func (m *umlMachine) became() string {
	last, _, _, err := m.host.lab.Wire.box.do(context.Background(), request{Op: opSignal, Name: m.daemon()})
	what := "its kernel has ended: " + last.End
	switch {
	case err != nil:
		what = "of its kernel nothing is known: " + err.Error()
	case last.Running:
		what = "its kernel runs, and does not answer: " + m.standing()
	}
	return what + "; its console ends with:\n" + tail(m.console(), 20)
}

// standing is what the processes of a kernel that runs are at: those that wait for nothing they are told of stand still.
func (m *umlMachine) standing() string {
	out, err := exec.Command("ps", "-eo", "pid,ppid,stat,time,wchan:20,args").Output()
	if err != nil {
		return err.Error()
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, m.specFile()) {
			found = append(found, strings.Join(strings.Fields(line)[:5], " "))
		}
	}
	return strings.Join(found, ", ")
}

// console is what a kernel said until it panicked, without the stack.
func console(name string) string {
	said, _, _ := strings.Cut(tail(name, 200), "CPU: ")
	return said
}
