package verdict

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/tests/lab"
)

// cluster is two hosts that agree, a container on each.
func cluster() []Facts {
	nodes := []api.Node{{ID: "1", Name: "host1", Alive: true}, {ID: "2", Name: "host2", Alive: true}}
	networks := []api.Network{{Name: "blue", VNID: 1}, {Name: "red", VNID: 2}}
	ends := []api.Endpoint{
		{Network: "blue", Name: "a", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.2")}, Host: "host1"},
		{Network: "blue", Name: "b", Addrs: []netip.Addr{netip.MustParseAddr("10.0.2.2")}, Host: "host2"},
	}
	ring := func() []api.Pool {
		return []api.Pool{
			{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Shares: []api.Share{{Node: "1", Blocks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}},
			{Network: "blue", Prefix: netip.MustParsePrefix("10.0.0.0/22"), Shares: []api.Share{
				{Node: "1", Blocks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/23")}},
				{Node: "2", Blocks: []netip.Prefix{netip.MustParsePrefix("10.0.2.0/23")}},
			}},
		}
	}
	var hosts []Facts
	for i, n := range nodes {
		h := Facts{
			Host: n.Name, Nodes: append([]api.Node{}, nodes...), Networks: append([]api.Network{}, networks...),
			Endpoints: append([]api.Endpoint{}, ends...), Ring: ring(),
			Status:     api.Status{Node: n.ID, Name: n.Name, Hosts: api.Count{Part: 2, All: 2}},
			Containers: []Container{{Name: ends[i].Name, Network: "blue", Addr: ends[i].Addrs[0]}},
		}
		h.Nodes[i].Self = true
		h.Nodes[1-i].Path = "ok"
		hosts = append(hosts, h)
	}
	return hosts
}

// said is an error unless one of the violations is about this, "": there is none.
func said(t *testing.T, wrong []string, about string) {
	t.Helper()
	switch {
	case about == "" && len(wrong) > 0:
		t.Errorf("all is well, and it says: %q", wrong)
	case about != "" && !strings.Contains(strings.Join(wrong, "\n"), about):
		t.Errorf("it does not say %q, but %q", about, wrong)
	}
}

func TestHosts(t *testing.T) {
	for _, c := range []struct {
		name          string
		change        func([]Facts)
		owners, agree string // what is said by Owners and Agree
	}{
		{"all is well", func([]Facts) {}, "", ""},
		{"two owners of a range", func(h []Facts) {
			h[1].Ring[1].Shares[1].Blocks[0] = netip.MustParsePrefix("10.0.1.0/24")
		}, "10.0.0.0/23 is owned by host1 and 10.0.1.0/24 by host2", "ranges are"},
		{"two containers of an address", func(h []Facts) {
			h[1].Containers[0].Addr = h[0].Containers[0].Addr
		}, "b on host2 has the address 10.0.0.2 of a on host1", "Docker has b on blue at 10.0.0.2"},
		{"two networks of a VNID", func(h []Facts) { h[1].Networks[1].VNID = 1 }, `VNID 1 is that of "blue" and, on host2, of "red"`, "networks are"},
		{"one VNID by two hosts", func(h []Facts) { h[1].Networks[0].Name = "green" }, `on host2, of "green"`, "networks are"},
		{"a name not heard of", func(h []Facts) { h[1].Networks[0].Name = "provisional/a" }, "", "networks are"},
		{"two names not heard of", func(h []Facts) {
			h[0].Networks[0].Name, h[1].Networks[0].Name = "provisional/a", "provisional/b"
		}, `on host2, of "provisional/b"`, "networks are"},
		{"a dead host", func(h []Facts) { h[0].Nodes[1].Alive = false }, "", "hosts are"},
		{"one too many", func(h []Facts) { h[0].Status.Hosts.All = 3 }, "", "2 of 3 hosts alive"},
		{"a problem", func(h []Facts) { h[0].Status.Problems = []api.Problem{{What: "the disk is full"}} }, "", "host1: the disk is full"},
		{"an endpoint too few", func(h []Facts) { h[1].Endpoints = h[1].Endpoints[:1] }, "", "endpoints are"},
		{"a container that is gone", func(h []Facts) { h[0].Containers = nil }, "", "knows a on blue at 10.0.0.2, which Docker has not"},
	} {
		t.Run(c.name, func(t *testing.T) {
			hosts := cluster()
			c.change(hosts)
			said(t, Owners(hosts), c.owners)
			said(t, Agree(hosts), c.agree)
		})
	}
	said(t, Agree(nil), "no host")
	said(t, Both([]string{"a", "b"}, []string{"b", "c"}), "b")
	said(t, Both([]string{"a"}, []string{"c"}), "")
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

func TestPackets(t *testing.T) {
	where := func(witness string) string { return witness[strings.Index(witness, "/")+1:] }
	lost := lab.Sighting{Kind: "lost", By: "blue/host1", To: "blue/host2", From: at(5), Until: at(8), N: 30}
	reset := lab.Sighting{Kind: "reset", By: "blue/host1", To: "blue/host2", From: at(6), Until: at(46), Why: "reset by peer"}
	late := lost
	late.Until = at(60)
	power := Fault{Name: "power", Hosts: []string{"host2"}, Packets: true, From: at(5), Until: at(8)}
	lasting := power
	lasting.Until = time.Time{}
	agent := Fault{Name: "agent", Hosts: []string{"host2"}, Commands: true, From: at(5), Until: at(8)}
	wire := Fault{Name: "wire", Hosts: []string{"host2", "host1"}, Between: true, Packets: true, From: at(5), Until: at(8)}
	other := Fault{Name: "wire", Hosts: []string{"host2", "host3"}, Between: true, Packets: true, From: at(5), Until: at(8)}
	past := power
	past.From, past.Until = at(-60), at(-30)
	for _, c := range []struct {
		name   string
		seen   lab.Sighting
		faults []Fault
		about  string
	}{
		{"met", lab.Sighting{Kind: "met", By: "blue/host1", To: "blue/host2"}, nil, ""},
		{"crossed", lab.Sighting{Kind: "crossed", By: "blue/host1", To: "red/host2", From: at(5)}, []Fault{power}, "of red/host2 came to blue/host1"},
		{"lost", lost, nil, "30 datagrams between blue/host1 and blue/host2 were lost, for 3s"},
		{"lost by an agent", lost, []Fault{agent}, "were lost"},
		{"lost by power", lost, []Fault{power}, ""},
		{"lost while power is", lost, []Fault{lasting}, ""},
		{"lost by a wire", lost, []Fault{wire}, ""},
		{"lost by another wire", lost, []Fault{other}, "were lost"},
		{"lost after the fault", lost, []Fault{past}, "were lost"},
		{"lost for too long", late, []Fault{power}, "until long after"},
		{"reset", reset, []Fault{other}, "ended with no fault there, 40s later: reset by peer"},
		{"reset by power", reset, []Fault{power}, ""},
	} {
		t.Run(c.name, func(t *testing.T) { said(t, Packets([]lab.Sighting{c.seen}, c.faults, where), c.about) })
	}
}

func TestCommands(t *testing.T) {
	run := Command{Host: "host1", Text: "docker run", From: at(5), Until: at(7), Err: errors.New("no address")}
	said(t, Commands([]Command{run}, nil), "host1# docker run failed after 2s")
	said(t, Commands([]Command{run}, []Fault{{Hosts: []string{"host1"}, Commands: true, From: at(6), Until: at(8)}}), "")
	said(t, Commands([]Command{run}, []Fault{{Hosts: []string{"host1"}, Packets: true, From: at(6), Until: at(8)}}), "failed")
	said(t, Commands([]Command{run}, []Fault{{Hosts: []string{"host2"}, Commands: true, From: at(6), Until: at(8)}}), "failed")
	run.Err = nil
	said(t, Commands([]Command{run}, nil), "")
}

func TestLeft(t *testing.T) {
	before := Belongings{map[string][]string{"links": {"gv0", "gvtun"}}, map[string]int{"goroutines": 50}}
	said(t, Left("host1", before, before), "")
	said(t, Left("host1", before, Belongings{map[string][]string{"links": {"gv0", "gv1234"}}, nil}), "left among the links: gv1234")
	said(t, Left("host1", before, Belongings{map[string][]string{"links": {"gv0", "gv0"}}, nil}), "gv0")
	said(t, Left("host1", before, Belongings{nil, map[string]int{"goroutines": 90}}), "90 goroutines, and 50 before")
}

func TestMet(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 1, 1, 0, 0, s, 0, time.UTC) }
	all := map[string]lab.WitnessAt{"red/host1": {Addr: "10.1.0.1", Since: at(1)}, "red/host2": {Addr: "10.1.0.2", Since: at(2)}, "blue/host1": {Addr: "10.2.0.1", Since: at(9)}}
	var seen []lab.Sighting
	for _, kind := range []string{"met", "joined", "framed"} {
		seen = append(seen, lab.Sighting{Kind: kind, By: "red/host1", To: "red/host2", From: at(3)}, lab.Sighting{Kind: kind, By: "red/host2", To: "red/host1", From: at(4)})
	}
	if err := Met(seen, all); err != nil {
		t.Error(err)
	}
	if err := Met(seen[:5], all); err == nil || !strings.Contains(err.Error(), `red/host2 has none "framed" of red/host1`) {
		t.Errorf("one of six never was: %v", err)
	}
	all["red/host2"] = lab.WitnessAt{Addr: "10.1.0.3", Since: at(5)} // its host lost power
	if err := Met(seen, all); err == nil || strings.Count(err.Error(), "has none") != 6 {
		t.Errorf("all that was seen was before it was started again: %v", err)
	}
}
