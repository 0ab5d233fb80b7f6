package driver

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/host/store"
)

// requests are calls of an engine as it makes them, each to a driver with network N and,
// joined, endpoint E.
var requests = []struct{ method, body string }{
	{"NetworkDriver.GwAllocCheck", `{"Options":{"com.docker.network.generic":{"mtu":"1400"}}}`},
	{"NetworkDriver.AllocateNetwork", `{"NetworkID":"n2"}`},
	{"NetworkDriver.FreeNetwork", `{"NetworkID":"n2"}`},
	{"NetworkDriver.CreateNetwork", `{"NetworkID":"n2","Options":{"com.docker.network.generic":{"vnid":"9"}},"IPv4Data":[{"AddressSpace":"grapevine","Pool":"10.130.0.0/24","Gateway":"10.130.0.1/24","AuxAddresses":{"a":"10.130.0.9/24"}}],"IPv6Data":[{"AddressSpace":"grapevine","Pool":"fd12:3456:789a:7::/64","Gateway":"fd12:3456:789a:7::1/64"}]}`},
	{"NetworkDriver.DeleteNetwork", `{"NetworkID":"N"}`},
	{"NetworkDriver.CreateEndpoint", `{"NetworkID":"N","EndpointID":"e2e2e2e2e2e2e2","Interface":{"Address":"10.129.0.3/24","MacAddress":"02:42:0a:81:00:03"},"Options":{}}`},
	{"NetworkDriver.EndpointOperInfo", `{"NetworkID":"N","EndpointID":"eeeeeeeeeeee"}`},
	{"NetworkDriver.DeleteEndpoint", `{"NetworkID":"N","EndpointID":"eeeeeeeeeeee"}`},
	{"NetworkDriver.Join", `{"NetworkID":"N","EndpointID":"eeeeeeeeeeee","SandboxKey":"/var/run/docker/netns/1","Options":{}}`},
	{"NetworkDriver.Leave", `{"NetworkID":"N","EndpointID":"eeeeeeeeeeee"}`},
	{"NetworkDriver.ProgramExternalConnectivity", `{"NetworkID":"N","EndpointID":"eeeeeeeeeeee","Options":{"com.docker.network.portmap":[{"Proto":6,"Port":80,"HostIP":"192.0.2.1","HostPort":8080,"HostPortEnd":8080}]}}`},
	{"NetworkDriver.RevokeExternalConnectivity", `{"NetworkID":"N","EndpointID":"eeeeeeeeeeee"}`},
	{"NetworkDriver.DiscoverNew", `{"DiscoveryType":1,"DiscoveryData":{"Address":"192.0.2.1","Self":true}}`},
	{"IpamDriver.RequestPool", `{"AddressSpace":"grapevine","Pool":"10.131.0.0/16","SubPool":"10.131.2.0/24","Options":{"hostsubnetlength":"6"},"V6":false}`},
	{"IpamDriver.RequestPool", `{"AddressSpace":"grapevine","Options":{"prefixlen6":"64"},"V6":true}`},
	{"IpamDriver.ReleasePool", `{"PoolID":"grapevine/10.129.0.0/24"}`},
	{"IpamDriver.RequestAddress", `{"PoolID":"grapevine/10.129.0.0/24","Address":"","Options":{}}`},
	{"IpamDriver.RequestAddress", `{"PoolID":"grapevine/10.129.0.0/24","Address":"10.129.0.1","Options":{"RequestAddressType":"com.docker.network.gateway"}}`},
	{"IpamDriver.ReleaseAddress", `{"PoolID":"grapevine/10.129.0.0/24","Address":"10.129.0.2"}`},
}

// FuzzRequests sends any body to the handler of any call. None panics; one that returns an
// error has changed nothing; and the host's own interfaces stay.
func FuzzRequests(f *testing.F) {
	for i, r := range requests {
		f.Add(uint8(i), r.body)
	}
	f.Add(uint8(7), `{"EndpointID":"0"}`) // whose interface would be gv0
	for i, r := range requests {
		if r.method == "NetworkDriver.CreateEndpoint" { // of which no record can be
			f.Add(uint8(i), `{"NetworkID":"N","EndpointID":"e2\u0080e2e2e2e2e2e2","Interface":{"Address":"10.129.0.3/24"}}`)
			f.Add(uint8(i), `{"NetworkID":"N","EndpointID":"`+strings.Repeat("e2", 200)+`","Interface":{"Address":"10.129.0.3/24"}}`)
		}
	}
	f.Fuzz(func(t *testing.T, method uint8, body string) {
		t.Setenv("TMPDIR", "/dev/shm") // what is written has not to wait for a disk
		g := newRig(t, "unix:///nonexistent")
		g.machine.links["gv0"] = "the gateway port"
		post := servePlugin(t, g)
		for _, r := range []struct{ method, body string }{
			{"IpamDriver.RequestPool", `{"AddressSpace":"grapevine","Pool":"10.129.0.0/24"}`},
			{"IpamDriver.RequestAddress", `{"PoolID":"grapevine/10.129.0.0/24","Address":"10.129.0.1","Options":{"RequestAddressType":"com.docker.network.gateway"}}`},
			{"NetworkDriver.CreateNetwork", `{"NetworkID":"N","IPv4Data":[{"AddressSpace":"grapevine","Pool":"10.129.0.0/24","Gateway":"10.129.0.1/24"}]}`},
			{"IpamDriver.RequestAddress", `{"PoolID":"grapevine/10.129.0.0/24","Address":"10.129.0.2"}`},
			{"NetworkDriver.CreateEndpoint", `{"NetworkID":"N","EndpointID":"eeeeeeeeeeee","Interface":{"Address":"10.129.0.2/24"}}`},
			{"NetworkDriver.Join", `{"NetworkID":"N","EndpointID":"eeeeeeeeeeee","SandboxKey":"/var/run/docker/netns/1"}`},
		} {
			if got := post("/"+r.method, r.body); strings.Contains(got, `"Err`) {
				t.Fatalf("%s: %s", r.method, got)
			}
		}
		before := g.all()
		path := "/" + requests[int(method)%len(requests)].method
		got := post(path, body)
		if strings.Contains(got, "internal error") {
			t.Errorf("%s %s: %s", path, body, got)
		}
		if after := g.all(); !strings.HasPrefix(got, "200") || strings.Contains(got, `{"Err`) {
			if after != before {
				t.Errorf("%s %s: %s\nbefore: %s\nafter: %s", path, body, got, before, after)
			}
		}
		if g.machine.links["gv0"] == "" {
			t.Errorf("%s %s: the gateway port is gone", path, body)
		}
	})
}

// all prints all that calls of Docker change.
func (g *rig) all() string {
	g.core.mu.Lock()
	defer g.core.mu.Unlock()
	local, _ := json.Marshal([]any{g.core.local.networks, g.core.local.endpoints})
	return fmt.Sprintf("%s\n%s\n%s\n%v", g.records(), g.machine, local, g.core.alloc.Leases())
}

// FuzzState: whatever is stored of networks and endpoints, the driver starts with it or says
// why not, and the calls for it do not panic.
func FuzzState(f *testing.F) {
	n, _ := json.Marshal(localNetwork{ID: "N", Name: "blue", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.129.0.0/24")}, Gateways: []netip.Addr{netip.MustParseAddr("10.129.0.1")}})
	e, _ := json.Marshal(localEndpoint{ID: "eeeeeeeeeeee", Network: "N", Prefix: netip.MustParsePrefix("10.129.0.0/24"), Addr: netip.MustParseAddr("10.129.0.2"), MAC: "02:42:0a:81:00:02", Joined: true, Sandbox: "/x"})
	f.Add(n, e)
	f.Add([]byte(`{"ID":"N","Name":"blue","Prefixes":["10.129.0.0/24"]}`), e)
	f.Add(n, []byte(`{"ID":"e","Network":"N","MAC":"02:42:0a:81:00:02"}`))
	f.Add([]byte(`{}`), []byte(`{"Ports":[{}]}`))
	f.Fuzz(func(t *testing.T, nb, eb []byte) {
		var n localNetwork
		var e localEndpoint
		if json.Unmarshal(nb, &n) != nil || json.Unmarshal(eb, &e) != nil || n.ID == "" || e.ID == "" || len(n.ID) > 1000 || len(e.ID) > 1000 {
			return
		}
		t.Setenv("TMPDIR", "/dev/shm")
		db, err := store.Open(filepath.Join(t.TempDir(), "local.db"))
		check(t, err)
		defer db.Close()
		if db.Update(func(tx *store.Tx) error {
			if err := networkBucket.Put(tx, n.ID, n); err != nil {
				return err
			}
			return endpointBucket.Put(tx, e.ID, e)
		}) != nil {
			return
		}
		g := newRig(t, "unix:///nonexistent")
		if g.core.local, err = openLocal(db, time.Now()); err != nil {
			return
		}
		post := servePlugin(t, g)
		ids, _ := json.Marshal(map[string]string{"NetworkID": n.ID, "EndpointID": e.ID})
		for _, method := range []string{"EndpointOperInfo", "Join", "ProgramExternalConnectivity", "Leave", "DeleteEndpoint", "DeleteNetwork"} {
			if got := post("/NetworkDriver."+method, string(ids)); strings.Contains(got, "internal error") {
				t.Errorf("%s: %s", method, got)
			}
		}
	})
}

// FuzzNames: of what Docker tells of a container's names, labels and addresses, only what the
// cluster takes is told to it.
func FuzzNames(f *testing.F) {
	f.Add("web", "shop", "db\nshop-web-1\nwww", "169.254.1.2 fe80::1")
	f.Add("0123456789abcdef", "\xff", "a\x00b\n\n"+strings.Repeat("x", 256), "169.254.1.2 10.0.0.1 fe80::1%eth0")
	f.Fuzz(func(t *testing.T, name, service, aliases, addrs string) {
		c := docker.Container{ID: name, Name: name, Labels: map[string]string{"com.docker.compose.service": service}}
		v := view{inspected: map[string]inspected{"e": {aliases: strings.Split(aliases, "\n")}}}
		e, _ := cluster.Endpoint{ID: "e", Network: "n", Host: self}.WithAliases(v.aliasesOf(c, "e", cluster.Endpoint{}))
		if err := cluster.Validate(e); err != nil || slices.Contains(e.AllAliases(), name) {
			t.Errorf("aliases %q: %v", e.AllAliases(), err)
		}
		for _, a := range linkLocal(strings.Fields(addrs)) {
			if !a.IsLinkLocalUnicast() || a.Zone() != "" || a.Is4In6() {
				t.Errorf("link-local address %s", a)
			}
		}
	})
}
