package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/dns"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/nat"
	"github.com/grapevine-net/grapevine/host/ovs"
	"github.com/grapevine-net/grapevine/reach"
)

// Agent is what an agent knows and others have to find out.
type Agent struct {
	Switch   *ovs.Instance
	Embedded bool
	Datapath string
	// Plugin is this agent as a managed plugin, Name empty: it is none.
	Plugin docker.Plugin
}

// Look finds out how this host is; agent is nil where none runs. device is the gateway
// port and table that of our routes. It changes nothing, and takes a second or two.
func Look(ctx context.Context, cfg config.Config, agent *Agent, device string, tables []int) Host {
	h := Host{Config: cfg, Kernel: kernel(), Underlay: underlay(cfg)}
	if w, err := reach.Open(device, tables, slog.New(slog.DiscardHandler)); err == nil { // else there is nothing to say
		h.Reaches = w.Things()
		w.Close()
	}
	docker := make(chan Docker, 1) // beside the switch: who hangs takes no time of the other's
	go func() {
		if cfg.Edge() {
			docker <- Docker{}
			return
		}
		docker <- lookAtDocker(ctx, cfg, agent)
	}()
	h.Switch = lookAtSwitch(ctx, cfg, agent, h.Kernel)
	h.Docker = <-docker
	if agent == nil {
		h.Taken = taken(cfg)
	}
	return h
}

func kernel() Kernel {
	k := Kernel{Release: "(unknown)", Has: ovs.HasKernelDatapath()}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		k.Release = unix.ByteSliceToString(name.Release[:])
	}
	for _, pattern := range []string{"kernel/net/openvswitch/openvswitch.ko*", "openvswitch.ko*"} {
		found, _ := filepath.Glob(filepath.Join("/lib/modules", k.Release, pattern)) // the pattern is right
		k.File = k.File || len(found) > 0
	}
	return k
}

// WantedUnderlay is which underlay a host with these settings is to have.
func WantedUnderlay(cfg config.Config) link.Want {
	return link.Want{Addr: cfg.Advertise.Addr(), Interface: cfg.AdvertiseInterface, Bind: cfg.Bind}
}

func underlay(cfg config.Config) (u Underlay) {
	if u.Underlay, u.Err = link.FindUnderlay(WantedUnderlay(cfg)); u.Err != nil {
		return u
	}
	if cfg.MTU != 0 {
		u.MTU = cfg.MTU
	}
	u.Twin, _ = twin(u.Interface, u.Addr) // an interface without ARP has none to be found
	return u
}

// switchPatience is for each question to Open vSwitch: one that hangs leaves time for the others.
const switchPatience = 5 * time.Second

func lookAtSwitch(ctx context.Context, cfg config.Config, agent *Agent, k Kernel) (s Switch) {
	ask := func(question func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, switchPatience)
		defer cancel()
		err := question(ctx)
		if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) { // as of a program that was killed then
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return err
	}
	var major, minor int
	s.Err = ask(func(ctx context.Context) (err error) {
		major, minor, err = ovs.Version(ctx)
		return err
	})
	s.Version = fmt.Sprintf("%d.%d", major, minor)
	instance := ovs.NewInstance(ovs.DefaultSocket)
	if agent != nil {
		instance, s.Embedded, s.Datapath = agent.Switch, agent.Embedded, agent.Datapath
	} else {
		s.Datapath = "userspace"
		if k.Has && cfg.Datapath != "userspace" {
			s.Datapath = "kernel"
		}
		own := ovs.NewInstance(filepath.Join(cfg.Run, "ovs", "db.sock"))
		switch err := ask(own.Ping); {
		case err == nil, errors.Is(err, context.DeadlineExceeded): // it is there, and hangs
			instance, s.Embedded = own, true
		case cfg.OVS != "host" && ask(instance.Ping) != nil:
			s.Idle = s.Err == nil
			return s
		}
	}
	if s.DB = ask(instance.Ping); s.DB == nil {
		s.Err = nil // wherever its programs are
		s.Forward = ask(func(ctx context.Context) error {
			_, err := instance.Appctl(ctx, "version")
			return err
		})
	}
	return s
}

func lookAtDocker(ctx context.Context, cfg config.Config, agent *Agent) (d Docker) {
	if d.Unasked = ctx.Err() != nil; d.Unasked {
		return d
	}
	client := docker.New(cfg.Docker)
	defer client.Close()
	if d.Engine, d.Err = client.Engine(ctx); d.Err != nil {
		return d
	}
	settings, _ := client.Settings(ctx) // that it does not answer is found above
	d.Pools = settings.Pools
	d.Redirect = dns.CanRedirect()
	if agent != nil && agent.Plugin.Name != "" {
		d.Plugin = agent.Plugin
	}
	if agent == nil {
		plugins, _ := client.NetworkPlugins(ctx) // an engine that has none has none of ours
		i := slices.IndexFunc(plugins, func(p docker.Plugin) bool { return strings.Contains(p.Name+p.Reference, "grapevine") })
		if i >= 0 {
			d.Plugin = plugins[i]
			return d
		}
	}
	if d.Idle = agent == nil; !d.Idle {
		d.Socket = activate(ctx, cfg.PluginSocket)
	}
	return d
}

// activate asks the driver what Docker asks it first.
func activate(ctx context.Context, socket string) error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://plugin/Plugin.Activate", http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("call the driver at %s: %w", socket, errors.Unwrap(err))
	}
	defer response.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(response.Body)
	if err == nil && !strings.Contains(body.String(), "NetworkDriver") {
		err = fmt.Errorf("what answers at %s is no network driver: %.200s", socket, body.String())
	}
	return err
}

// taken lists those of the agent's ports that cannot be listened on.
func taken(cfg config.Config) (list []Port) {
	at := fmt.Sprintf(":%d", cfg.Port)
	tcp, err := net.Listen("tcp", at)
	if err == nil {
		tcp.Close()
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		list = append(list, Port{fmt.Sprintf("TCP port %d (gossip)", cfg.Port), holder("tcp", cfg.Port)})
	}
	udp, err := net.ListenPacket("udp", at)
	if err == nil {
		_ = udp.Close()
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		list = append(list, Port{fmt.Sprintf("UDP port %d (gossip)", cfg.Port), holder("udp", cfg.Port)})
	}
	return list
}

// holder finds the process that listens on a port of proto: that of a socket of this namespace.
func holder(proto string, port uint16) (p Process) {
	listens := map[string]string{"tcp": "0A", "udp": "07"}[proto] // as the kernel numbers states
	sockets := map[string]bool{}
	for _, family := range []string{"", "6"} {
		text, _ := os.ReadFile("/proc/net/" + proto + family) // absent: the host has no such family
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 9 && f[3] == listens && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				sockets["socket:["+f[9]+"]"] = true
			}
		}
	}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is right
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && sockets[to] {
			dir := filepath.Dir(filepath.Dir(file))
			name, _ := os.ReadFile(filepath.Join(dir, "comm")) // it may have ended by now
			p.ID, _ = strconv.Atoi(filepath.Base(dir))
			p.Program = strings.TrimSpace(string(name))
			return p
		}
	}
	return p
}

// LookAtFirewall reads the rules of a family's tables, and nftables'.
func LookAtFirewall(ctx context.Context, v6 bool) (f Firewall) {
	programs := []string{"iptables-save", "iptables-legacy-save", "iptables-nft-save"}
	names := "/proc/net/ip_tables_names"
	if v6 {
		programs = []string{"ip6tables-save", "ip6tables-legacy-save", "ip6tables-nft-save"}
		names = "/proc/net/ip6_tables_names"
	}
	legacy, _ := os.ReadFile(names) // absent: the kernel has no legacy tables
	variants := map[string]string{} // by program: "" if it is that of the iptables in PATH
	first := map[string]string{}    // by what a program says of filter, which one said it first
	for _, program := range programs {
		if strings.Contains(program, "legacy") && len(legacy) == 0 {
			continue // to ask would make the tables
		}
		text, err := output(ctx, program, "-t", "filter")
		if errors.Is(err, exec.ErrNotFound) && program != programs[0] {
			continue
		}
		if err != nil {
			f.Err, f.Unanswered = errors.Join(f.Err, err), f.Unanswered || !errors.Is(err, exec.ErrNotFound)
			continue
		}
		if text = rulesOnly(text); first[text] == "" {
			first[text] = program
			f.Saved, f.SavedBy = append(f.Saved, text), append(f.SavedBy, variantOf(program))
		}
		variants[program] = variantOf(first[text])
	}
	if len(f.Saved) > 0 {
		f.Err = nil
	}
	for _, program := range programs[1:] {
		if strings.Contains(program, "legacy") && len(legacy) == 0 {
			continue
		}
		text, err := output(ctx, program) // of all tables that there are
		if err != nil {
			f.Unanswered = f.Unanswered || !errors.Is(err, exec.ErrNotFound)
			continue
		}
		for name, rules := range savedTables(text) {
			rules = withoutOwn(rules)
			switch {
			case !strings.Contains(rules, "\n-A ") && !strings.Contains(rules, " DROP"):
			case name == "nat":
				f.NAT, f.NATBy = append(f.NAT, rules), append(f.NATBy, variants[program])
			case slices.Contains(beside, name):
				f.Beside = append(f.Beside, Table{name, rules, variants[program]})
			}
		}
	}
	slices.SortStableFunc(f.Beside, func(a, b Table) int { return strings.Compare(a.Name, b.Name) })
	var err error
	if f.NFT, err = output(ctx, "nft", "list", "ruleset"); err != nil {
		missing := errors.Is(err, exec.ErrNotFound)
		if missing {
			err = errors.New("this host has no program nft")
		}
		f.Unread, f.Unanswered = Unread{strings.Join(nat.Others(), ", "), err.Error(), missing}, f.Unanswered || !missing
	}
	return f
}

// variantOf is such as "-legacy" of iptables-legacy-save, and empty of iptables-save.
func variantOf(program string) string {
	name := strings.TrimSuffix(program, "-save")
	if _, variant, found := strings.Cut(name, "-"); found {
		return "-" + variant
	}
	return ""
}

// savedTables parts what iptables-save says of several tables.
func savedTables(text string) map[string]string {
	tables := map[string]string{}
	name := ""
	for line := range strings.Lines(rulesOnly(text)) {
		if begins, found := strings.CutPrefix(line, "*"); found {
			name = strings.TrimSpace(begins)
		}
		tables[name] += line
	}
	return tables
}

// withoutOwn leaves out the rules that lead to grapevine's own chains, which are where a kernel has no nf_tables.
func withoutOwn(rules string) string {
	var b strings.Builder
	for line := range strings.Lines(rules) {
		if !strings.Contains(line, " -j GRAPEVINE") && !strings.Contains(line, " -g GRAPEVINE") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// rulesOnly leaves out comments, and what chains have counted: two programs that read the same rules one after the other
// are to say the same.
func rulesOnly(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasPrefix(line, ":") {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " [")
			line += "\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

func output(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	path, there := find(program)
	if !there {
		return "", fmt.Errorf("%s: %w", program, exec.ErrNotFound)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", program, err, bytes.TrimSpace(said.Bytes()))
	}
	return string(out), nil
}

// find is where a program is, also if PATH has no directory of administrators.
func find(program string) (path string, there bool) {
	for _, name := range []string{program, filepath.Join("/usr/sbin", program), filepath.Join("/sbin", program)} {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	return "", false
}

// HasNFT reports whether this host has the program that reads rules of nftables.
func HasNFT() bool {
	_, there := find("nft")
	return there
}
