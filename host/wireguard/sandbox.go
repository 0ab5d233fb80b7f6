package wireguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/netns"
)

// SandboxVerb is the verb of this program by which a sandbox's process begins (ServeSandbox): not for people.
const SandboxVerb = "wireguard-sandbox"

// sandboxMTU is more than any network's: a packet that is too large for the way to a client leaves in fragments of
// WireGuard's own packets, since nobody in the sandbox could tell its sender.
const sandboxMTU = 65000

// beginning is how long a process may take to have its device: on a busy host it waits for the kernel's module too.
const beginning = 10 * time.Second

// Sandbox is a network namespace with one device, gvwgc, whose peers are no hosts of the cluster. It is that of a
// process, which outlives the agent. Encrypted packets come and go by the host's own namespace; what is in them enters
// this one, and nothing of the host is there.
type Sandbox struct {
	Run string // the directory of the process's socket and log
}

func (s Sandbox) socket() string { return filepath.Join(s.Run, "clients.sock") }
func (s Sandbox) log() string    { return filepath.Join(s.Run, "clients.log") }

// Room is a sandbox that is there.
type Room struct {
	File *os.File // its network namespace
	Path string   // of that, for as long as its process lives
	Kind string
	box  Sandbox
}

// Close lets go of the sandbox, which stays.
func (r *Room) Close() { r.File.Close() }

// Ensure makes the sandbox, unless it is there with its device.
func (s Sandbox) Ensure(ctx context.Context) (*Room, error) {
	if r, err := s.Open(); err == nil {
		return r, nil
	}
	if err := finish(s.socket()); err != nil {
		return nil, err
	}
	if _, err := endStrays(SandboxVerb, s.socket()); err != nil { // the next one is to have their port
		return nil, err
	}
	if err := os.Remove(s.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("make room for the socket of %s: %w", link.Clients, err)
	}
	if err := s.start(); err != nil {
		return nil, fmt.Errorf("begin the process of %s: %w", link.Clients, err)
	}
	for end := time.Now().Add(beginning); ; {
		r, err := s.Open()
		if err == nil {
			return r, nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return nil, fmt.Errorf("the process of %s makes no device: %s says why: `modprobe tun` if /dev/net/tun is missing", link.Clients, s.log())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Open finds the sandbox and its device; it is an error if they are not there.
func (s Sandbox) Open() (*Room, error) {
	pid, err := listener(s.socket())
	if err != nil {
		return nil, err
	}
	r := &Room{Path: fmt.Sprintf("/proc/%d/ns/net", pid), box: s}
	if r.File, err = os.Open(r.Path); err != nil {
		return nil, err
	}
	err = netns.Do(r.File, func() error {
		l, err := link.Get(link.Clients)
		if r.Kind = Userspace; l.Kind == "wireguard" {
			r.Kind = Kernel
		}
		return err
	})
	if err == nil && r.Kind == Userspace {
		_, err = ask(s.socket(), "get=1\n")
	}
	if err != nil {
		r.File.Close()
		return nil, err
	}
	return r, nil
}

// State is what the device has.
func (r *Room) State() (state State, err error) {
	if r.Kind == Userspace {
		state, err = userspaceState(r.box.socket())
	} else {
		err = netns.Do(r.File, func() error { state, err = kernelStateOf(link.Clients); return err })
	}
	if err != nil {
		return state, fmt.Errorf("look at the peers of %s: %w", link.Clients, err)
	}
	return state, nil
}

// Set changes what the device has.
func (r *Room) Set(c Change) (err error) {
	switch {
	case c.Empty():
		return nil
	case r.Kind == Userspace:
		err = setUserspace(r.box.socket(), c)
	default:
		err = netns.Do(r.File, func() error { return setKernelOf(link.Clients, c) })
	}
	if err != nil {
		return fmt.Errorf("set the key, the port or the peers of %s: %w", link.Clients, err)
	}
	return nil
}

// Remove ends the sandbox with all that is in it, and returns what there was.
func (s Sandbox) Remove() (gone []string, err error) {
	if _, err := listener(s.socket()); err == nil {
		gone = append(gone, "interface "+link.Clients)
	}
	err = finish(s.socket())
	strays, more := endStrays(SandboxVerb, s.socket())
	if err = errors.Join(err, more); strays > 0 && gone == nil {
		gone = append(gone, "interface "+link.Clients)
	}
	for _, file := range []string{s.socket(), s.log()} {
		if err := os.Remove(file); err == nil {
			gone = append(gone, file)
		}
	}
	return gone, err
}

// start runs the process in a session and a network namespace of its own. It gets the host's as its third file.
func (s Sandbox) start() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	host, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer host.Close()
	log, err := os.OpenFile(s.log(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program, SandboxVerb, s.socket())
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.ExtraFiles = []*os.File{host}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // at the agent's end init does
	return nil
}

// ServeSandbox is the process of a sandbox: its network namespace is it. It makes gvwgc there, the kernel's where there
// is one, and answers on a socket until the device is deleted or ctx ends.
func ServeSandbox(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: %s SOCKET: the agent starts it, nobody else", SandboxVerb)
	}
	_ = os.WriteFile("/proc/self/comm", []byte(comm), 0) // for people: it is no agent
	unix.CloseOnExec(3)
	host := os.NewFile(3, "the host's network namespace")
	if err := forward(); err != nil {
		return err
	}
	syscall.Umask(0o077) // the private key can be read there
	kernel, err := inKernel(host)
	if err != nil {
		return err
	}
	if kernel {
		l, err := listenAt(args[0])
		if err != nil {
			return err
		}
		defer l.Close()
		go answer(l, nil, nil)
		<-ctx.Done()
		return nil
	}
	t, err := tun.CreateTUN(link.Clients, sandboxMTU)
	if err != nil {
		return fmt.Errorf("make %s: %w", link.Clients, err)
	}
	refused := new(refusals)
	d := device.NewDevice(counted{t, refused}, counting{hostBind{conn.NewDefaultBind(), host}, refused}, logger(link.Clients, refused))
	defer d.Close()
	if err := errors.Join(link.Up(link.Clients), awake(d)); err != nil {
		return err
	}
	l, err := listenAt(args[0])
	if err != nil {
		return err
	}
	defer l.Close()
	go answer(l, d, refused)
	select {
	case <-ctx.Done():
	case <-d.Wait():
	}
	return nil
}

func listenAt(socket string) (*net.UnixListener, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("make the socket of %s: %w", link.Clients, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the socket of %s: %w", link.Clients, err)
	}
	l.SetUnlinkOnClose(false) // when this process ends the name may be that of the next one
	return l, nil
}

// inKernel makes the kernel's device, if it has WireGuard: in the host's namespace, where its packets go on to be sent
// and taken, and moved here.
func inKernel(host *os.File) (made bool, err error) {
	here, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return false, err
	}
	defer here.Close()
	err = netns.Do(host, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = link.Clients, sandboxMTU
		l := &netlink.Wireguard{LinkAttrs: attrs}
		if err := link.Delete(link.Clients); err != nil { // of a process that ended before it had moved it
			return err
		}
		if err := netlink.LinkAdd(l); err != nil {
			return err
		}
		return netlink.LinkSetNsFd(l, int(here.Fd()))
	})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("make %s: %w", link.Clients, err)
	}
	return true, link.Up(link.Clients)
}

// forward has the sandbox pass on what comes in at one interface and is for another, and answer for nothing itself.
func forward() error {
	for _, s := range [][2]string{
		{"ipv4/conf/all/rp_filter", "0"}, {"ipv4/conf/default/rp_filter", "0"},
		{"ipv4/conf/all/send_redirects", "0"}, {"ipv4/conf/default/send_redirects", "0"},
		{"ipv4/conf/all/arp_ignore", "8"},
		{"ipv6/conf/default/disable_ipv6", "0"}, {"ipv6/conf/all/disable_ipv6", "0"},
		{"ipv6/conf/default/accept_ra", "0"}, {"ipv6/conf/default/autoconf", "0"}, {"ipv6/conf/default/accept_dad", "0"}, {"ipv6/conf/default/addr_gen_mode", "1"},
		{"ipv4/ip_forward", "1"}, {"ipv6/conf/all/forwarding", "1"},
	} {
		err := os.WriteFile("/proc/sys/net/"+s[0], []byte(s[1]), 0)
		if err != nil && !(strings.HasPrefix(s[0], "ipv6") && errors.Is(err, os.ErrNotExist)) {
			return fmt.Errorf("let %s lead to the switch: set %s: %w", link.Clients, s[0], err)
		}
	}
	return link.Up("lo") // until it was up once the kernel takes no route by a next hop
}

// hostBind has the sockets of encrypted packets in the host's network namespace.
type hostBind struct {
	conn.Bind
	host *os.File
}

// Open implements conn.Bind.
func (b hostBind) Open(port uint16) (receive []conn.ReceiveFunc, at uint16, err error) {
	err = netns.Do(b.host, func() error { receive, at, err = b.Bind.Open(port); return err })
	return receive, at, err
}
