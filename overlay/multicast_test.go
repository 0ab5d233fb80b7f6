package overlay

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

func casting(name string, vnid uint32) cluster.Network {
	return cluster.Network{Name: name, VNID: vnid, Options: map[string]string{cluster.MulticastOption: "on"}}
}

func listen(e cluster.Endpoint, groups ...string) cluster.Listen {
	l := cluster.Listen{Endpoint: e.ID, Host: e.Host}
	for _, g := range groups {
		l.Groups = append(l.Groups, addr(g))
	}
	return l
}

// groupsOf says who gets what, as text.
func groupsOf(in pipeline.Input) (list []string) {
	for _, g := range in.Groups {
		list = append(list, fmt.Sprint(g.VNID, g.Addr, g.Ports, g.VTEPs))
	}
	return list
}

func wantGroups(t *testing.T, what string, in pipeline.Input, want ...string) {
	t.Helper()
	if got := groupsOf(in); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s:\n%q, want\n%q", what, got, want)
	}
}

// TestGroups: members are told by their own hosts, as far as they are on a network that carries multicast.
func TestGroups(t *testing.T) {
	w := newWorld(t)
	w.hosts()
	w.put(casting("blue", 5), network("red", 6), casting("everywhere", 0),
		subnet("10.128.0.0/22", "blue", "10.128.0.1"), subnet("10.129.0.0/22", "red", ""), subnet("10.131.0.0/22", "everywhere", ""))
	a, b, r, z := endpoint(me, 'a', "blue", "10.128.0.7"), endpoint(me, 'b', "blue", "10.128.0.8"), endpoint(me, 'c', "red", "10.129.0.7"), endpoint(me, 'e', "everywhere", "10.131.0.7")
	far, red := endpoint(other, 'd', "blue", "10.128.2.7"), endpoint(other, 'f', "red", "10.129.2.7")
	w.put(a, b, r, z, listen(a, "239.1.2.3"), listen(r, "239.1.2.3"), listen(z, "239.1.2.3"))
	w.by(other, far, red, listen(far, "224.0.0.251", "239.1.2.3"), listen(red, "239.1.2.3"))
	ports := Ports{Tunnel: 1, Endpoints: map[string]uint32{a.ID: 11, b.ID: 12, r.ID: 13, z.ID: 14}}
	var plans plans
	plan := func() pipeline.Input {
		t.Helper()
		in, problems := plans.plan(w.Snapshot(), me, pipeline.Metadata, ports)
		if anew, _ := Plan(w.Snapshot(), me, pipeline.Metadata, ports); fmt.Sprint(groupsOf(anew)) != fmt.Sprint(groupsOf(in)) || len(problems) != 0 {
			t.Errorf("%v; what changed was missed: %q, anew %q", problems, groupsOf(in), groupsOf(anew))
		}
		return in
	}
	wantGroups(t, "at first", plan(),
		"5 10.128.3.255 [11 12] [192.0.2.2]", "5 224.0.0.1 [11 12] [192.0.2.2]", "5 224.0.0.251 [] [192.0.2.2]", "5 239.1.2.3 [11] [192.0.2.2]", "5 255.255.255.255 [11 12] [192.0.2.2]")

	// Of what a host says of another one's endpoint nothing counts.
	w.by(third, cluster.Listen{Endpoint: b.ID, Host: third, Groups: []netip.Addr{addr("239.9.9.9")}})
	wantGroups(t, "after another host's word", plan(),
		"5 10.128.3.255 [11 12] [192.0.2.2]", "5 224.0.0.1 [11 12] [192.0.2.2]", "5 224.0.0.251 [] [192.0.2.2]", "5 239.1.2.3 [11] [192.0.2.2]", "5 255.255.255.255 [11 12] [192.0.2.2]")

	// A member leaves; a container ends, with what was said of it; one comes on another host.
	w.put(listen(a))
	w.end(other, far.Key())
	w.by(third, endpoint(third, '9', "blue", "10.128.3.7"))
	wantGroups(t, "later", plan(), "5 10.128.3.255 [11 12] [192.0.2.3]", "5 224.0.0.1 [11 12] [192.0.2.3]", "5 255.255.255.255 [11 12] [192.0.2.3]")
}

// TestGroupsEncrypted: of an encrypted network nothing goes but by what encrypts.
func TestGroupsEncrypted(t *testing.T) {
	w := newWorld(t)
	w.hosts()
	n := casting("blue", 5)
	n.Options[cluster.EncryptedOption] = ""
	w.put(n, subnet("10.128.0.0/22", "blue", ""))
	a, far := endpoint(me, 'a', "blue", "10.128.0.7"), endpoint(other, 'd', "blue", "10.128.2.7")
	w.put(a)
	w.by(other, far, listen(far, "239.1.2.3"))
	ports := Ports{Tunnel: 1, Endpoints: map[string]uint32{a.ID: 11}}
	in, _ := Plan(w.Snapshot(), me, pipeline.Metadata, ports)
	wantGroups(t, "no host has a key", in, "5 10.128.3.255 [11] []", "5 224.0.0.1 [11] []", "5 239.1.2.3 [] []", "5 255.255.255.255 [11] []")
	for i, id := range []cluster.NodeID{me, other} {
		keyed := node(id, netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}))
		keyed.NetworksKey = make([]byte, 32)
		keyed.NetworksKey[0] = byte(i + 1)
		w.by(id, keyed)
	}
	in, _ = Plan(w.Snapshot(), me, pipeline.Metadata, ports)
	inside := cluster.SecureVTEP(other)
	wantGroups(t, "both have", in, fmt.Sprintf("5 10.128.3.255 [11] [%s]", inside), fmt.Sprintf("5 224.0.0.1 [11] [%s]", inside), fmt.Sprintf("5 239.1.2.3 [] [%s]", inside), fmt.Sprintf("5 255.255.255.255 [11] [%s]", inside))
	for _, g := range in.Groups {
		if !g.Encrypted {
			t.Errorf("%s is taken for a group of a network that is not encrypted", g.Addr)
		}
	}
}

// TestGroupsAndRules: who has rules for what may be done to it gets nothing.
func TestGroupsAndRules(t *testing.T) {
	w := newWorld(t)
	w.hosts()
	n := casting("blue", 5)
	n.Options[cluster.IsolateOption] = "true"
	w.put(n, subnet("10.128.0.0/22", "blue", ""))
	a, open := endpoint(me, 'a', "blue", "10.128.0.7"), endpoint(me, 'b', "blue", "10.128.0.8")
	a.Labelled, open.Labelled, open.Labels = true, true, map[string]string{"grapevine.open": "true"}
	w.put(a, open, listen(a, "239.1.2.3"), listen(open, "239.1.2.3"))
	in, _ := Plan(w.Snapshot(), me, pipeline.Metadata, Ports{Tunnel: 1, Endpoints: map[string]uint32{a.ID: 11, open.ID: 12}})
	wantGroups(t, "isolated", in, "5 10.128.3.255 [12] []", "5 224.0.0.1 [12] []", "5 239.1.2.3 [12] []", "5 255.255.255.255 [12] []")
}

// TestGroupsOfAHostThatMeansHarm: of one that tells more groups than a host may, others take no more than that, and of what
// another host tells all.
func TestGroupsOfAHostThatMeansHarm(t *testing.T) {
	w := newWorld(t)
	w.hosts()
	w.put(casting("blue", 5), subnet("10.128.0.0/22", "blue", ""))
	a := endpoint(me, 'a', "blue", "10.128.0.7")
	w.put(a)
	const containers = cluster.MaxHostGroups/cluster.MaxGroups + 8
	for i := range containers {
		e := endpoint(other, 'd', "blue", fmt.Sprintf("10.128.2.%d", 7+i))
		e.ID = fmt.Sprintf("%064x", 0xd000+i)
		e.MAC = fmt.Sprintf("02:42:00:00:01:%02x", i)
		l := cluster.Listen{Endpoint: e.ID, Host: other}
		for g := range cluster.MaxGroups {
			l.Groups = append(l.Groups, netip.AddrFrom4([4]byte{239, 1, byte(i), byte(g)}))
		}
		w.by(other, e, l)
	}
	honest := endpoint(third, 'f', "blue", "10.128.3.7")
	w.by(third, honest, listen(honest, "239.9.9.9", "239.9.9.10"))
	in, _ := Plan(w.Snapshot(), me, pipeline.Metadata, Ports{Tunnel: 1, Endpoints: map[string]uint32{a.ID: 11}})
	by := map[netip.Addr]int{}
	for _, g := range in.Groups {
		if b := g.Addr.As4(); b[0] == 239 {
			for _, v := range g.VTEPs {
				by[v]++
			}
		}
	}
	if got := by[addr("192.0.2.2")]; got != cluster.MaxHostGroups {
		t.Errorf("%d groups of the host that tells %d count, want %d", got, containers*cluster.MaxGroups, cluster.MaxHostGroups)
	}
	if got := by[addr("192.0.2.3")]; got != 2 {
		t.Errorf("%d groups of the other host count, want 2", got)
	}
}
