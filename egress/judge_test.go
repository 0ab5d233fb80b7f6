package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
)

func id(n int) cluster.NodeID { return cluster.NodeID(fmt.Sprintf("%016x", n)) }

var mail = cluster.Egress{Name: "mail", Networks: []string{"blue"}, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.25")}}

// gateways are hosts 1, 2, ..., in this order, of which some are dead.
func gateways(n int, dead ...int) (list []Gateway) {
	for i := range n {
		list = append(list, Gateway{ID: id(i + 1), Name: fmt.Sprint("host", i+1), Alive: !slices.Contains(dead, i+1)})
	}
	return list
}

func unfit(list []Gateway, n int) []Gateway {
	list[n-1].Unfit = true
	return list
}

func TestJudge(t *testing.T) {
	quorum := mail
	quorum.Quorum = true
	stalled := gateways(3)
	stalled[1].Unheard, stalled[2].Unheard = true, true
	asked := gateways(3)
	asked[1].Unheard, asked[2].Unheard, asked[2].Asked = true, true, true
	half := gateways(3)
	half[1].Unheard = true
	for _, tt := range []struct {
		what string
		c    Case
		want Verdict
		turn int
	}{
		{"nobody holds it: the first takes it", Case{Self: id(1), Egress: mail, Gateways: gateways(3)}, Take, 0},
		{"the next one waits for its turn", Case{Self: id(2), Egress: mail, Gateways: gateways(3)}, Take, 1},
		{"who is dead has none", Case{Self: id(3), Egress: mail, Gateways: gateways(3, 1)}, Take, 1},
		{"the holder lives: it keeps it, also before who comes first", Case{Self: id(1), Egress: mail, Gateways: gateways(3), Holder: id(3)}, Leave, 0},
		{"this host holds it", Case{Self: id(3), Egress: mail, Gateways: gateways(3), Holder: id(3)}, Hold, 0},
		{"all others are dead, and nobody asks how many", Case{Self: id(3), Egress: mail, Gateways: gateways(3, 1, 2), Holder: id(3)}, Hold, 0},
		{"the holder is dead", Case{Self: id(1), Egress: mail, Gateways: gateways(3, 2), Holder: id(2)}, Take, 0},
		{"nobody waits for who says that it cannot", Case{Self: id(3), Egress: mail, Gateways: unfit(gateways(3), 1)}, Take, 1},
		{"... not even if it is the only one", Case{Self: id(2), Egress: mail, Gateways: unfit(gateways(3), 1)}, Take, 0},
		{"the holder is no gateway any more", Case{Self: id(1), Egress: mail, Gateways: gateways(3), Holder: id(9)}, Take, 0},
		{"lost to a host that is still in doubt here", Case{Self: id(1), Egress: mail, Gateways: gateways(3, 2), Holder: id(2), Has: true}, Leave, 0},
		{"given up by who had it", Case{Self: id(1), Egress: mail, Gateways: gateways(3), Has: true}, Take, 0},
		{"this host is no gateway", Case{Self: id(9), Egress: mail, Gateways: gateways(3)}, Leave, 0},
		{"nor any more", Case{Self: id(9), Egress: mail, Gateways: gateways(3), Holder: id(9)}, Leave, 0},
		{"half is no quorum: the holder lets go", Case{Self: id(1), Egress: quorum, Gateways: gateways(4, 3, 4), Holder: id(1)}, Leave, 0},
		{"nor does it take", Case{Self: id(1), Egress: quorum, Gateways: gateways(2, 2), Holder: id(2)}, Leave, 0},
		{"two of three are", Case{Self: id(1), Egress: quorum, Gateways: gateways(3, 2), Holder: id(2)}, Take, 0},
		{"a gateway that has left counts while it is named", Case{Self: id(1), Egress: cluster.Egress{Name: "mail", Quorum: true, Gateways: []string{"a", "b", "c", "d"}}, Gateways: gateways(2)}, Leave, 0},
		{"who was not heard since a stall is none of it", Case{Self: id(1), Egress: quorum, Gateways: stalled, Holder: id(1), Has: true}, Leave, 0},
		{"nor is there one to take it", Case{Self: id(1), Egress: quorum, Gateways: stalled, Young: true}, Leave, 0},
		{"one is asked just now: the holder waits for that", Case{Self: id(1), Egress: quorum, Gateways: asked, Holder: id(1), Here: true}, Hold, 0},
		{"... and takes nothing meanwhile", Case{Self: id(1), Egress: quorum, Gateways: asked, Holder: id(1)}, Leave, 0},
		{"one was heard", Case{Self: id(1), Egress: quorum, Gateways: half, Holder: id(1), Here: true}, Hold, 0},
		{"it let go, and hears the others before it hears who took it", Case{Self: id(1), Egress: quorum, Gateways: half, Holder: id(1)}, Take, 2},
		{"nobody asks how many", Case{Self: id(1), Egress: mail, Gateways: stalled, Holder: id(1)}, Hold, 0},
		{"an agent that has just started heard nobody yet", Case{Self: id(1), Egress: quorum, Gateways: stalled, Holder: id(1), Young: true, Here: true}, Hold, 0},
		{"... and reads another's name", Case{Self: id(1), Egress: quorum, Gateways: stalled, Holder: id(2), Young: true, Here: true}, Leave, 0},
		{"another egress has its address", Case{Self: id(1), Egress: mail, Gateways: gateways(3), Twice: true}, Leave, 0},
	} {
		if v, turn := tt.c.Judge(); v != tt.want || turn != tt.turn {
			t.Errorf("%s: %d in turn %d, want %d in turn %d", tt.what, v, turn, tt.want, tt.turn)
		}
	}
}

// TestOneTakes: whatever hosts are alive, exactly one of those takes what nobody holds at once, and all others agree.
func TestOneTakes(t *testing.T) {
	for dead := range 1 << 5 {
		first := 0
		for self := 1; self <= 5; self++ {
			if dead>>(self-1)&1 == 1 {
				continue
			}
			all := gateways(5)
			for i := range all {
				all[i].Alive = dead>>i&1 == 0
			}
			if v, turn := (Case{Self: id(self), Egress: mail, Gateways: all}).Judge(); v == Take && turn == 0 {
				first++
			}
		}
		if want := min(1, 31-dead); first != want {
			t.Errorf("of the dead %05b: %d take at once, want %d", dead, first, want)
		}
	}
}

// TestGateways: hosts are gateways by their names, several addresses spread over them, and a host that comes or goes
// changes the order of no others.
func TestGateways(t *testing.T) {
	s := cluster.New(id(9))
	for i := 1; i <= 4; i++ {
		r, _, err := cluster.New(id(i)).Put(cluster.Node{ID: id(i), Name: fmt.Sprint("host", i)})
		if err == nil {
			_, err = s.Merge([]cluster.Record{r})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	edge, _, err := cluster.New(id(5)).Put(cluster.Node{ID: id(5), Name: "edge", Edge: true})
	if err == nil {
		_, err = s.Merge([]cluster.Record{edge})
	}
	if err != nil {
		t.Fatal(err)
	}
	alive := func(cluster.NodeID) bool { return true }
	e := mail
	e.Gateways = []string{"host9"}
	if got := Gateways(s.Snapshot(), e, alive); len(got) != 0 {
		t.Errorf("%v are gateways", got)
	}
	e.Gateways = nil
	if got := Gateways(s.Snapshot(), e, alive); len(got) != 4 {
		t.Errorf("of four hosts with Docker and one without %v are gateways", got)
	}
	e.Gateways = []string{"host1", "host9"}
	if got := Gateways(s.Snapshot(), e, alive); len(got) != 1 || got[0].Name != "host1" || !got[0].Alive {
		t.Errorf("%v are gateways", got)
	}
	order := func(name string) Gateway {
		e := mail
		e.Name = name
		return Gateways(s.Snapshot(), e, alive)[0]
	}
	first := map[string]int{}
	for i := range 400 {
		first[order(fmt.Sprint("egress", i)).Name]++
	}
	for host, n := range first {
		if n < 50 || len(first) != 4 { // 100 are expected
			t.Errorf("%s comes first for %d of 400", host, n)
		}
	}
}

// TestAll: of two that contradict each other the first by name counts.
func TestAll(t *testing.T) {
	s := cluster.New(id(1))
	red := mail
	red.Name, red.Networks = "zoo", []string{"red", "blue"}
	asks := func(name string, last byte, networks ...string) cluster.LabelEgress {
		return cluster.LabelEgress{Name: name, Networks: networks, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, last})}, Labels: []string{"role=smtp"}}
	}
	for _, e := range []cluster.Body{red, mail, asks("zoo", 26, "red"), asks("zz", 27, "red", "green")} {
		if _, _, err := s.Put(e); err != nil {
			t.Fatal(err)
		}
	}
	got := All(s.Snapshot())
	var clashes []string
	for _, l := range got {
		for _, c := range l.Clashes {
			clashes = append(clashes, fmt.Sprint(l.Name, " ", c))
		}
	}
	if want := []string{"zoo {mail 192.0.2.25 }", "zoo {mail invalid IP blue}", "zoo/labels {zoo invalid IP }", "zz {zoo/labels invalid IP red}"}; !slices.Equal(clashes, want) {
		t.Errorf("%q, want %q", clashes, want)
	}
	if got = got[:2]; got[0].Name != "mail" || got[0].Twice || got[0].Taken != nil || !got[1].Twice || !slices.Equal(got[1].Taken, []string{"blue"}) {
		t.Errorf("%+v", got)
	}
}

// TestGatewaysByLabel: a gateway is named, or has one of the labels that are; a label is no name.
func TestGatewaysByLabel(t *testing.T) {
	snap := state(t,
		cluster.Node{ID: id(1), Name: "host1", Labels: []string{"rack=7", "role=edge"}},
		cluster.Node{ID: id(2), Name: "host2", Labels: []string{"rack=7"}},
		cluster.Node{ID: id(3), Name: "host3"},
		cluster.Node{ID: id(4), Name: "host4", Labels: []string{"role=edge"}, Edge: true}, // forwards nothing
	)
	for _, tt := range []struct{ gateways, want []string }{
		{[]string{"role=edge"}, []string{"host1"}},
		{[]string{"rack=7"}, []string{"host1", "host2"}},
		{[]string{"host3", "role=edge"}, []string{"host1", "host3"}},
		{[]string{"role"}, nil},
		{[]string{"role=none"}, nil},
		{nil, []string{"host1", "host2", "host3"}},
	} {
		e := mail
		e.Gateways = tt.gateways
		var got []string
		for _, g := range Gateways(snap, e, func(cluster.NodeID) bool { return true }) {
			got = append(got, g.Name)
		}
		if slices.Sort(got); !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, want %q", tt.gateways, got, tt.want)
		}
	}
}
