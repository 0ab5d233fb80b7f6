package resolved

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// inside says that this process is in the namespaces where systemd-resolved runs.
const inside = "RESOLVED_INSIDE"

// room begins a system bus and systemd-resolved where nothing of the machine's is, and then the test.
const room = `set -e
mount -t tmpfs none /run
mkdir -p /run/dbus /run/systemd/resolve /run/etc
cp /etc/passwd /etc/group /run/etc/
grep -q ^systemd-resolve: /etc/passwd || echo systemd-resolve:x:991:991::/:/usr/sbin/nologin >>/run/etc/passwd
grep -q ^systemd-resolve: /etc/group || echo systemd-resolve:x:991: >>/run/etc/group
mount --bind /run/etc/passwd /etc/passwd
mount --bind /run/etc/group /etc/group
chown systemd-resolve:systemd-resolve /run/systemd/resolve
cat >/run/bus.conf <<B
<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/></policy></busconfig>
B
ip link set lo up
ip link add gv0 type veth peer name other
ip link set other up
ip link set gv0 up
ip addr add 10.128.0.1/14 dev gv0
dbus-daemon --config-file=/run/bus.conf --nofork --nopidfile &
bus=$!
export LD_LIBRARY_PATH=$(dirname $(find $1 -name 'libsystemd-shared-*.so'))
$(find $1 -name systemd-resolved -type f -perm -1) &
resolved=$!
trap 'kill $resolved $bus' EXIT
export PATH=$PATH:$(dirname $(find $1 -name resolvectl -type f))
for i in $(seq 100); do
  [ ! -e /run/systemd/resolve/resolv.conf ] || ! resolvectl dns >/dev/null 2>&1 || break
  sleep 0.1
done
$2 -test.run '^TestRealInside$' -test.v
`

// TestReal has systemd-resolved of the machine's Debian ask about names of networks, and about nothing else.
func TestReal(t *testing.T) {
	out, err := exec.Command("../../scripts/resolved").Output()
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("scripts/resolved: %v", err)
		}
		t.Skip("systemd-resolved cannot be had here:", err)
	}
	if _, err := exec.LookPath("dbus-daemon"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("there is no dbus-daemon: scripts/setup")
	}
	cmd := exec.Command("unshare", "--mount", "--net", "bash", "-c", room, "room", strings.TrimSpace(string(out)), os.Args[0])
	cmd.Env = append(os.Environ(), inside+"=1")
	said, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "--- PASS: TestRealInside") {
		t.Errorf("%v\n%s", err, said)
	}
}

// server answers all names with one address, and notes them.
type server struct {
	mu    sync.Mutex
	asked []string
}

func (s *server) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	name := q.Question[0].Name
	s.mu.Lock()
	s.asked = append(s.asked, strings.ToLower(name))
	s.mu.Unlock()
	m := new(dns.Msg).SetReply(q)
	if q.Question[0].Qtype == dns.TypeA {
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.IPv4(10, 128, 0, 9)}}
	}
	_ = w.WriteMsg(m)
}

func TestRealInside(t *testing.T) {
	if os.Getenv(inside) == "" {
		t.Skip("TestReal runs it")
	}
	if !Runs() {
		t.Fatal("it does not run")
	}
	s, at := &server{}, netip.MustParseAddr("127.0.0.79")
	for _, network := range []string{"udp", "tcp"} {
		up := make(chan struct{})
		listener := &dns.Server{Addr: at.String() + ":53", Net: network, Handler: s, NotifyStartedFunc: func() { close(up) }}
		go func() { _ = listener.ListenAndServe() }()
		<-up
	}
	stub := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, "127.0.0.53:53")
	}}
	find := func(name string) []string {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		addrs, _ := stub.LookupHost(ctx, name)
		return addrs
	}
	if got := find("db.blue."); len(got) != 0 {
		t.Errorf("before it is told: %v", got)
	}
	for range 2 { // said again, nothing changes
		if err := Set(t.Context(), "gv0", at, []string{"blue", "shop_default"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"db.blue.", "web.shop_default."} {
		if got := find(name); !slices.Equal(got, []string{"10.128.0.9"}) {
			t.Errorf("%s is %v", name, got)
		}
	}
	// Of one word it asks by each domain.
	out, err := exec.Command("resolvectl", "query", "db").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "10.128.0.9") {
		t.Errorf("resolvectl query db: %v: %s", err, out)
	}
	_ = find("example.com.")
	s.mu.Lock()
	for _, name := range s.asked {
		if !strings.HasSuffix(name, ".blue.") && !strings.HasSuffix(name, ".shop_default.") && name != "blue." && name != "shop_default." {
			t.Errorf("it asks about %s", name)
		}
	}
	s.mu.Unlock()
	// Another domain in the place of the former, and none.
	if err := Set(t.Context(), "gv0", at, []string{"red"}); err != nil {
		t.Fatal(err)
	}
	if got := find("other.red."); !slices.Equal(got, []string{"10.128.0.9"}) {
		t.Errorf("other.red is %v", got)
	}
	if got := find("new.blue."); len(got) != 0 {
		t.Errorf("of a network that is told no more: %v", got)
	}
	if out, err := exec.Command("ip", "link", "del", "gv0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := find("third.red."); len(got) != 0 {
		t.Errorf("without the interface: %v", got)
	}
}
