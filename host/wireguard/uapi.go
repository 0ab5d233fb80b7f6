package wireguard

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a process of WireGuard may take to answer.
const patience = 3 * time.Second

// ask says something to a process of WireGuard (its "cross-platform userspace interface") and reads what it answers,
// but for the line of the error.
func ask(socket, request string) (lines []string, err error) {
	c, err := net.DialTimeout("unix", socket, patience)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, request+"\n"); err != nil {
		return nil, err
	}
	for scan := bufio.NewScanner(c); scan.Scan(); {
		line := scan.Text()
		if number, ends := strings.CutPrefix(line, "errno="); ends {
			if number != "0" {
				n, _ := strconv.Atoi(number)
				return nil, fmt.Errorf("the process answers: %w", unix.Errno(max(n, -n)))
			}
			return lines, nil
		}
		lines = append(lines, line)
	}
	return nil, errors.New("the process ends its answer too early")
}

// finish kills the process that is to answer on a socket, and hangs: it would keep the port. None there is no error.
func finish(socket string) error {
	pid, err := listener(socket)
	if err != nil {
		return nil //nolint:nilerr // nobody listens, or somebody else
	}
	return kill(pid) // the next one is to have its port
}

// listener is the process of WireGuard that listens on a socket; it is an error if none does.
func listener(socket string) (pid int, err error) {
	c, err := net.DialTimeout("unix", socket, patience)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, fmt.Errorf("find the process that listens on %s: %w", socket, failed)
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", peer.Pid))
	if err != nil {
		return 0, err
	}
	if strings.TrimSpace(string(name)) != comm {
		return 0, fmt.Errorf("%s is of another program, %s", socket, strings.TrimSpace(string(name)))
	}
	return int(peer.Pid), nil
}

func userspaceState(socket string) (State, error) {
	lines, err := ask(socket, "get=1\n")
	if err != nil {
		return State{}, err
	}
	return parse(lines)
}

// parse reads what a process says of its device.
func parse(lines []string) (s State, err error) {
	var p *Peer
	for _, line := range lines {
		name, value, _ := strings.Cut(line, "=")
		if p == nil && name != "private_key" && name != "listen_port" && name != "public_key" {
			continue
		}
		var bad error
		switch name {
		case "private_key":
			s.Private, bad = parseKey(value)
		case "listen_port":
			var n uint64
			n, bad = strconv.ParseUint(value, 10, 16)
			s.Port = uint16(n)
		case "public_key":
			s.Peers = append(s.Peers, Peer{})
			p = &s.Peers[len(s.Peers)-1]
			p.Key, bad = parseKey(value)
		case "endpoint":
			p.Endpoint, bad = netip.ParseAddrPort(value)
			p.Endpoint = netip.AddrPortFrom(p.Endpoint.Addr().Unmap(), p.Endpoint.Port())
		case "allowed_ip":
			var inside netip.Prefix
			if inside, bad = netip.ParsePrefix(value); bad == nil {
				p.allow(inside)
			}
		case "persistent_keepalive_interval":
			var n uint64
			n, bad = strconv.ParseUint(value, 10, 16)
			p.Keepalive = time.Duration(n) * time.Second
		case "last_handshake_time_sec":
			var n int64
			if n, bad = strconv.ParseInt(value, 10, 64); n > 0 {
				p.Handshake = time.Unix(n, 0)
			}
		}
		if bad != nil {
			return State{}, fmt.Errorf("the process says %q: %w", line, bad)
		}
	}
	return s, nil
}

func parseKey(text string) (k Key, err error) {
	raw, err := hex.DecodeString(text)
	if err == nil && len(raw) != len(k) {
		err = fmt.Errorf("a key of %d bytes", len(raw))
	}
	copy(k[:], raw)
	return k, err
}

// request is a Change in the words of the process.
func request(c Change) string {
	var b strings.Builder
	b.WriteString("set=1\n")
	if c.Private != nil {
		fmt.Fprintf(&b, "private_key=%x\n", c.Private[:])
	}
	if c.Port != nil {
		fmt.Fprintf(&b, "listen_port=%d\n", *c.Port)
	}
	for _, k := range c.Remove {
		fmt.Fprintf(&b, "public_key=%x\nremove=true\n", k[:])
	}
	for _, p := range c.Keep {
		fmt.Fprintf(&b, "public_key=%x\nupdate_only=true\npersistent_keepalive_interval=%d\n", p.Key[:], int(p.Keepalive.Seconds()))
	}
	for _, p := range c.Set {
		fmt.Fprintf(&b, "public_key=%x\n", p.Key[:])
		if p.Endpoint.IsValid() {
			fmt.Fprintf(&b, "endpoint=%v\n", p.Endpoint)
		}
		fmt.Fprintf(&b, "persistent_keepalive_interval=%d\nreplace_allowed_ips=true\n", int(p.Keepalive.Seconds()))
		for _, inside := range p.allowed() {
			fmt.Fprintf(&b, "allowed_ip=%v\n", inside)
		}
	}
	if p := c.passing(); len(p.Ranges) > 0 {
		fmt.Fprintf(&b, "public_key=%x\n", p.Key[:])
		ranges(&b, p)
		fmt.Fprintf(&b, "public_key=%x\nremove=true\n", p.Key[:])
	}
	for _, p := range c.More {
		fmt.Fprintf(&b, "public_key=%x\nupdate_only=true\n", p.Key[:])
		ranges(&b, p)
	}
	return b.String()
}

func ranges(b *strings.Builder, p Peer) {
	for _, r := range p.Ranges {
		fmt.Fprintf(b, "allowed_ip=%v\n", r)
	}
}

func setUserspace(socket string, c Change) error {
	_, err := ask(socket, request(c))
	return err
}
