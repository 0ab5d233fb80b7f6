package edit

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/egress/hold"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/replica/replicatest"
)

const (
	self  = cluster.NodeID("00000000000000aa")
	other = cluster.NodeID("00000000000000bb")
)

// world is a host with a container of network blue, and another host.
type world struct {
	Desk
	r     *replica.Replica
	dead  map[cluster.NodeID]bool
	notes map[string]hold.Note
	lacks string
}

func newWorld(t *testing.T) *world {
	w := &world{dead: map[cluster.NodeID]bool{}, notes: map[string]hold.Note{}}
	w.r = replicatest.New(t, self,
		cluster.Node{ID: self, Name: "host1", VTEP: netip.MustParseAddr("192.0.2.1"), HoldsIPv6: true},
		cluster.Network{Name: "blue", VNID: 1}, cluster.Network{Name: "red", VNID: 2}, cluster.Network{Name: "zero"}, cluster.Network{Name: "vault", VNID: 3, Internal: true},
		cluster.Subnet{Network: "blue", Prefix: netip.MustParsePrefix("10.1.0.0/24")}, cluster.Subnet{Network: "red", Prefix: netip.MustParsePrefix("fd00::/64")},
		cluster.Endpoint{ID: "e1", Network: "blue", Host: self, Name: "web", Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.3")}})
	replicatest.Hear(t, w.r, other, cluster.Node{ID: other, Name: "host2", Agent: "v0.1", VTEP: netip.MustParseAddr("192.0.2.2")})
	w.Desk = Desk{
		Self: self, Name: "host1", Replica: w.r, Notes: func() map[string]hold.Note { return w.notes },
		Alive: func(id cluster.NodeID) bool { return !w.dead[id] }, Hear: func(id cluster.NodeID) (heard, known bool) { return !w.dead[id], true }, Published: func(key string) bool { return !strings.HasPrefix(key, "com.docker.") },
		Lacks: func() string { return w.lacks },
	}
	return w
}

// TestCreate: what cannot be is an error that says why, and changes nothing.
func TestCreate(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ name, networks, address, gateways, want string }{
		{"", "blue", "192.0.2.25", "", "it has no name"},
		{"a b", "blue", "192.0.2.25", "", "a slash or a space"},
		{"mail", "", "192.0.2.25", "", "add --network NAME"},
		{"mail", "blue", "", "", "add --address ADDRESS"},
		{"mail", "blue", "192.0.2.25/24", "", "without a prefix length"},
		{"mail", "blue", "127.0.0.1", "", "no address that a machine can have on a LAN"},
		{"mail", "green", "192.0.2.25", "", "there is no network green"},
		{"mail", "vault", "192.0.2.25", "", "network vault is internal"},
		{"mail", "zero", "192.0.2.25", "", "of all (VNID 0)"},
		{"mail", "blue", "10.1.0.9", "", "in the subnet of network blue"},
		{"mail", "blue", "192.0.2.2", "", "how the others know host host2"},
		{"mail", "blue", "fe80::25", "", "and that can move"},
		{"mail", "blue", "fd00:db8::25%eth0", "", "and that can move"},
		{"mail", "blue", "192.0.2.25 192.0.2.26", "", "one of each family"},
		{"mail", "blue", "fd00::25", "", "in the subnet of network red"},
		{"mail", "blue", "192.0.2.25 fd00:db8::25", "", "gateways with an older agent cannot hold an IPv6 address: host2 (v0.1)"},
		{"mail", "blue", "192.0.2.25", "host9", "there is no host host9"},
		{"mail", "blue", "192.0.2.25", "host2", ""},
		{"mail", "red", "192.0.2.26", "", "there is an egress mail already"},
		{"post", "red", "192.0.2.25", "", "egress mail has the address 192.0.2.25"},
		{"post", "blue red", "192.0.2.26", "", "network blue has the egress mail already"},
		{"post", "red", "192.0.2.26 192.0.2.25", "", "one of each family"},
		{"post", "red", "fd00:db8::25 192.0.2.25", "host1", "egress mail has the address 192.0.2.25"},
		{"post", "red", "fd00:db8::25 192.0.2.26", "host1", ""},
	} {
		before := w.r.Snapshot().Rev()
		done, err := w.Create(context.Background(), api.CreateEgressRequest{Name: c.name, Networks: strings.Fields(c.networks), Addresses: strings.Fields(c.address), Gateways: strings.Fields(c.gateways)})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%v: %v", c, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: %v, %v", c, done, err)
		case err != nil && w.r.Snapshot().Rev() != before:
			t.Errorf("%v: refused, and the state has changed", c)
		}
	}
	if done, err := w.Remove(context.Background(), api.RemoveEgressRequest{Name: "post"}); err != nil || !strings.Contains(done.Text, "egress post is removed") {
		t.Errorf("remove: %v, %v", done, err)
	}
	if list, err := w.List(context.Background()); err != nil || len(list) != 1 || list[0].Name != "mail" || len(list[0].Gateways) != 1 || !list[0].Gateways[0].Known {
		t.Errorf("listed: %+v, %v", list, err)
	}
}

// TestSet: what is said changes, what is not stays, and what cannot be is an error and changes nothing.
func TestSet(t *testing.T) {
	w := newWorld(t)
	yes := true
	for _, e := range []api.CreateEgressRequest{
		{Name: "mail", Networks: []string{"blue"}, Addresses: []string{"192.0.2.25"}, Gateways: []string{"host1"}},
		{Name: "post", Networks: []string{"red"}, Addresses: []string{"192.0.2.26"}},
	} {
		if _, err := w.Create(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		r    api.SetEgressRequest
		says string
		want string // "": refused, and nothing has changed
	}{
		{api.SetEgressRequest{Name: "none", AllGateways: true}, "there is no egress none", ""},
		{api.SetEgressRequest{Name: "mail"}, "nothing is to be changed", ""},
		{api.SetEgressRequest{Name: "mail", Gateways: []string{"host2"}, AllGateways: true}, "say one of the two", ""},
		{api.SetEgressRequest{Name: "mail", Gateways: []string{"host9"}}, "there is no host host9", ""},
		{api.SetEgressRequest{Name: "mail", Gateways: []string{"role=edge"}}, "no host's Docker has the label role=edge", ""},
		{api.SetEgressRequest{Name: "mail", Networks: []string{"blue", "zero"}}, "of all (VNID 0)", ""},
		{api.SetEgressRequest{Name: "mail", Networks: []string{"red"}}, "network red has the egress post already", ""},
		{api.SetEgressRequest{Name: "mail", Addresses: []string{"192.0.2.26"}}, "egress post has the address 192.0.2.26", ""},
		{api.SetEgressRequest{Name: "mail", Addresses: []string{"192.0.2.2"}}, "how the others know host host2", ""},
		{api.SetEgressRequest{Name: "mail", Addresses: []string{"mail"}}, "is no address", ""},
		{api.SetEgressRequest{Name: "mail", Gateways: []string{"host2", "host1", "host2"}}, "its gateways are host1, host2", "[blue] [192.0.2.25] [host1 host2] false"},
		{api.SetEgressRequest{Name: "mail", Quorum: &yes}, "sees more than half", "[blue] [192.0.2.25] [host1 host2] true"},
		{api.SetEgressRequest{Name: "mail", Quorum: &yes}, "it is so already", "[blue] [192.0.2.25] [host1 host2] true"},
		{api.SetEgressRequest{Name: "mail", Addresses: []string{"192.0.2.27"}, AllGateways: true}, "its address is 192.0.2.27, and no longer 192.0.2.25", "[blue] [192.0.2.27] [] true"},
		{api.SetEgressRequest{Name: "mail", Addresses: []string{"fd00:db8::25", "192.0.2.27"}, Gateways: []string{"host1"}}, "192.0.2.27 and fd00:db8::25, and no longer 192.0.2.27", "[blue] [192.0.2.27 fd00:db8::25] [host1] true"},
		{api.SetEgressRequest{Name: "mail", Gateways: []string{"host2"}}, "cannot hold an IPv6 address", ""},
		{api.SetEgressRequest{Name: "post", Networks: []string{"red"}, Addresses: []string{"192.0.2.25"}}, "no longer 192.0.2.26", "[red] [192.0.2.25] [] false"},
	} {
		before := w.r.Snapshot().Rev()
		done, err := w.Set(context.Background(), c.r)
		said := done.Text
		if err != nil {
			said = err.Error()
		}
		e, _ := cluster.Get[cluster.Egress](w.r.Snapshot(), c.r.Name)
		switch is := fmt.Sprint(e.Networks, e.Addrs, e.Gateways, e.Quorum); {
		case !strings.Contains(said, c.says) || (err != nil) != (c.want == ""):
			t.Errorf("%+v: %q, want %q", c.r, said, c.says)
		case err != nil && w.r.Snapshot().Rev() != before:
			t.Errorf("%+v: refused, and the state has changed", c.r)
		case err == nil && is != c.want:
			t.Errorf("%+v: it is %s, want %s", c.r, is, c.want)
		}
	}
	// A network that is gone since stays named, and is in the way of no change.
	if _, err := w.r.Update(func(tx *replica.Tx) error { tx.Delete(cluster.Network{Name: "red"}.Key()); return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Set(context.Background(), api.SetEgressRequest{Name: "post", Gateways: []string{"host2"}}); err != nil {
		t.Error(err)
	}
}

// TestProblems: status says of an egress that concerns this host what a user would call broken, and nothing else.
func TestProblems(t *testing.T) {
	held := func(by cluster.NodeID) cluster.Body { return cluster.EgressHolder{Egress: "mail", Host: by} }
	mail := cluster.Egress{Name: "mail", Networks: []string{"blue"}, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.25")}, Gateways: []string{"host2"}}
	ours := mail
	ours.Gateways = []string{"host1", "host2"}
	quorum := ours
	quorum.Quorum = true
	elsewhere := mail
	elsewhere.Networks = []string{"red"}
	both := ours
	both.Addrs = append([]netip.Addr{netip.MustParseAddr("fd00:db8::25")}, mail.Addrs...)
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	for name, c := range map[string]struct {
		put  []cluster.Body
		dead bool // the other host
		note hold.Note
		lack string // of this host's switch
		want string
	}{
		"held":            {put: []cluster.Body{mail, held(other)}},
		"of others":       {put: []cluster.Body{elsewhere}},
		"held by nobody":  {put: []cluster.Body{mail}, want: "egress-unheld: containers of network blue do not reach the outside from 192.0.2.25"},
		"its holder died": {put: []cluster.Body{mail, held(other)}, dead: true, want: "egress-unheld: containers of network blue may not reach"},
		"no quorum":       {put: []cluster.Body{quorum, held(self)}, dead: true, want: "not more than half of its gateways answer"},
		"occupied":        {put: []cluster.Body{ours}, note: hold.Note{Occupied: mac}, want: "egress-taken: this host cannot hold 192.0.2.25"},
		"rival":           {put: []cluster.Body{ours, held(self)}, note: hold.Note{Rival: mac}, want: "egress-taken: this host holds 192.0.2.25 for egress mail, and another machine on its LAN, 02:00:00:00:00:09, has"},
		"unfit":           {put: []cluster.Body{ours, held(other)}, note: hold.Note{Unfit: true}, want: "egress-unfit: this host is to be a gateway"},
		"twice":           {put: []cluster.Body{ours, held(other)}, note: hold.Note{Twice: true}, want: "the LAN sees it twice"},
		"IPv6, held":      {put: []cluster.Body{both, held(self)}},
		"IPv6, older":     {put: []cluster.Body{both, held(other)}, want: "by egress mail: gateways with an older agent cannot hold its IPv6 address: host2 (v0.1)"},
		"no zones":        {put: []cluster.Body{mail, held(other)}, lack: "CT zone", want: "egress-unanswered: who comes in from outside by a port that this host publishes is not answered by containers of network blue, which leave by egress mail: this host's switch lacks CT zone, "},
		"no zones, here":  {put: []cluster.Body{ours, held(self)}, lack: "CT zone"},
		"no zones, red":   {put: []cluster.Body{elsewhere, held(other)}, lack: "CT zone"},
		"VNID 0":          {put: []cluster.Body{mail, held(other), cluster.Network{Name: "blue"}}, want: "egress-passed-by: containers of network blue reach the outside from their own hosts' addresses"},
	} {
		w := newWorld(t)
		w.dead[other], w.notes["mail"], w.lacks = c.dead, c.note, c.lack
		replicatest.Put(t, w.r, c.put...)
		var said []string
		for _, p := range w.Problems(w.r.Snapshot()) {
			said = append(said, fmt.Sprintf("%s: %s", p.Code, p.What))
		}
		if text := strings.Join(said, "\n"); c.want == "" && text != "" || !strings.Contains(text, c.want) {
			t.Errorf("%s: status says %q, want %q", name, text, c.want)
		}
	}
}

// TestUnaware: hosts whose containers leave by another address until they hear of an egress are named, and no others.
func TestUnaware(t *testing.T) {
	w := newWorld(t)
	w.Self = other // as that host sees host1, which has containers
	const says = "host host1 has such containers and does not answer"
	w.dead[self] = true
	for network, want := range map[string]int{"blue": 1, "red": 0} {
		done, err := w.Create(context.Background(), api.CreateEgressRequest{Name: network, Networks: []string{network}, Addresses: []string{map[string]string{"blue": "192.0.2.25", "red": "192.0.2.26"}[network]}})
		if err != nil || strings.Count(done.Text, says) != want {
			t.Errorf("of %s: %q, %v", network, done.Text, err)
		}
	}
	done, err := w.Set(context.Background(), api.SetEgressRequest{Name: "blue", Addresses: []string{"192.0.2.27"}})
	if err != nil || strings.Contains(done.Text, says) {
		t.Errorf("another address: %q, %v", done.Text, err)
	}
	if _, err := w.Remove(context.Background(), api.RemoveEgressRequest{Name: "blue"}); err != nil {
		t.Fatal(err)
	}
	if done, err = w.Set(context.Background(), api.SetEgressRequest{Name: "red", Networks: []string{"red", "blue"}}); err != nil || !strings.Contains(done.Text, says) {
		t.Errorf("a network more: %q, %v", done.Text, err)
	}
	w.dead[self] = false
	if lines := w.unaware([]string{"blue"}); len(lines) > 0 {
		t.Errorf("all answer: %v", lines)
	}
}

// TestLabels: an egress of some containers is refused while an agent would not know that it is one; of two the one that
// comes first counts, and it is said; one of the network goes beside it.
func TestLabels(t *testing.T) {
	w := newWorld(t)
	create := func(name, address string, labels ...string) (string, error) {
		done, err := w.Create(context.Background(), api.CreateEgressRequest{Name: name, Networks: []string{"blue"}, Addresses: []string{address}, Labels: labels, Gateways: []string{"host1"}})
		return done.Text, err
	}
	if said, err := create("smtp", "192.0.2.25", "role=smtp"); err == nil || !strings.Contains(err.Error(), "older agent know of no --label") || !strings.Contains(err.Error(), "host1 (), host2 (v0.1)") {
		t.Fatalf("%q, %v", said, err)
	}
	replicatest.Put(t, w.r, cluster.Node{ID: self, Name: "host1", VTEP: netip.MustParseAddr("192.0.2.1"), HoldsIPv6: true, LabelEgress: true},
		cluster.Endpoint{ID: "e1", Network: "blue", Host: self, Name: "web", Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.3")}, Labelled: true, Labels: map[string]string{"role": "smtp", "tier": "gold"}},
		cluster.Endpoint{ID: "e2", Network: "blue", Host: self, Name: "late", Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.4")}})
	now := cluster.Node{ID: other, Name: "host2", Agent: "v0.2", VTEP: netip.MustParseAddr("192.0.2.2"), LabelEgress: true}
	hear := func(n cluster.Node, version int) {
		s := cluster.New(other)
		var rec cluster.Record
		var err error
		for i := range version {
			if n.MTU = 1500 + i; err == nil {
				rec, _, err = s.Put(n)
			}
		}
		if err == nil {
			_, err = w.r.Merge(cluster.Encode([]cluster.Record{rec}))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	hear(now, 2)
	for _, c := range []struct {
		name, address, labels, want string
		refused                     bool
	}{
		{"smtp", "192.0.2.25", "role smtp", "is no label selector", true},
		{"smtp", "192.0.2.25", "com.docker.compose.image=x", "is told to no other host", true},
		{"smtp", "192.0.2.25", "grapevine.io/role=x", "no container has the label grapevine.io/role", true},
		{"smtp", "192.0.2.25", "role == smtp", "containers of network blue with role=smtp reach the outside from 192.0.2.25", false},
		{"twin", "192.0.2.26", "role=smtp", "egress smtp asks for the same labels of network blue already", true},
		{"smtp", "192.0.2.26", "tier=gold", "there is an egress smtp already", true},
		{"mail", "192.0.2.25", "", "egress smtp has the address 192.0.2.25", true},
		{"mail", "192.0.2.26", "", "containers of network blue reach the outside from 192.0.2.26", false},
		{"more", "192.0.2.27", "", "network blue has the egress mail already", true},
		{"gold", "192.0.2.28", "tier=gold;role=smtp", "with role=smtp and tier=gold", false},
	} {
		said, err := create(c.name, c.address, strings.FieldsFunc(c.labels, func(r rune) bool { return r == ';' })...)
		if err != nil {
			said = err.Error()
		}
		if (err != nil) != c.refused || !strings.Contains(said, c.want) {
			t.Errorf("%+v: %q", c, said)
		}
	}
	list, err := w.List(context.Background())
	if err != nil || len(list) != 3 || fmt.Sprint(list[0].Containers) != "[{web blue host1 [smtp]}]" || len(list[1].Containers)+len(list[2].Containers) > 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if notes := strings.Join(list[0].Notes, "\n"); !strings.Contains(notes, "the labels of late on host host1 are not known") {
		t.Errorf("notes: %q", notes)
	}
	for _, c := range []struct {
		r    api.SetEgressRequest
		want string
	}{
		{api.SetEgressRequest{Name: "mail", Labels: []string{"role=web"}}, "create another egress with --label"},
		{api.SetEgressRequest{Name: "gold", Labels: []string{"role=smtp"}}, "asks for the same labels"},
		{api.SetEgressRequest{Name: "gold", Labels: []string{"tier in (gold,lead)"}}, "of containers with tier in (gold,lead), and no longer of those with role=smtp and tier=gold"},
	} {
		done, err := w.Set(context.Background(), c.r)
		if err != nil {
			done.Text = err.Error()
		}
		if !strings.Contains(done.Text, c.want) {
			t.Errorf("%+v: %q", c.r, done.Text)
		}
	}
	// An older agent comes later.
	now.LabelEgress = false
	hear(now, 3)
	var said []string
	for _, p := range w.Problems(w.r.Snapshot()) {
		said = append(said, fmt.Sprintf("%s: %s", p.Code, p.What))
	}
	if text := strings.Join(said, "\n"); !strings.Contains(text, "egress-passed-by: containers of network blue with tier in (gold,lead), network blue with role=smtp reach the outside from their own hosts' addresses") || !strings.Contains(text, "host2 (v0.2)") {
		t.Errorf("status says %q", text)
	}
	if done, err := w.Remove(context.Background(), api.RemoveEgressRequest{Name: "smtp"}); err != nil || !strings.Contains(done.Text, "by the egress of their network") {
		t.Errorf("remove: %v, %v", done, err)
	}
	if _, there := cluster.Get[cluster.LabelEgress](w.r.Snapshot(), "smtp"); there {
		t.Error("it is there yet")
	}
}

// TestSilent: while a holder's agent is dead a network's egress does its work, and one with labels does it for those containers alone
// that were there before: that is said.
func TestSilent(t *testing.T) {
	w := newWorld(t)
	w.Notes = func() map[string]hold.Note {
		silent := hold.Note{Occupied: net.HardwareAddr{2, 0, 0, 0, 0, 2}, Silent: true}
		return map[string]hold.Note{"mail": silent, "smtp": silent}
	}
	w.dead[other] = true
	replicatest.Put(t, w.r,
		cluster.Egress{Name: "mail", Networks: []string{"blue"}, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.25")}}, cluster.EgressHolder{Egress: "mail", Host: other},
		cluster.LabelEgress{Name: "smtp", Networks: []string{"blue"}, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.26")}, Labels: []string{"role=smtp"}}, cluster.EgressHolder{Egress: "smtp", Host: other})
	var said []string
	for _, p := range w.Problems(w.r.Snapshot()) {
		if p.Code == api.EgressUnheld {
			said = append(said, p.What)
		}
	}
	const want = "containers of network blue with role=smtp that come now do not reach the outside from 192.0.2.26, by egress smtp: host host2, which holds it, goes on without its agent"
	if len(said) != 1 || !strings.HasPrefix(said[0], want) {
		t.Errorf("status says %q", said)
	}
}

// TestMovable: a host that encrypts all has no VTEP, and its address is as little an egress's.
func TestMovable(t *testing.T) {
	w := newWorld(t)
	third := cluster.NodeID("00000000000000cc")
	replicatest.Hear(t, w.r, third, cluster.Node{ID: third, Name: "host3", WireGuard: make([]byte, cluster.WireGuardKeySize), WireGuardAt: netip.MustParseAddrPort("192.0.2.3:7948")})
	for address, want := range map[string]string{"192.0.2.3": "how the others know host host3", "192.0.2.4": ""} {
		err := movable(w.r.Snapshot(), cluster.Egress{Name: "mail"}, netip.MustParseAddr(address))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
