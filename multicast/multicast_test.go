package multicast

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
)

var start = time.Unix(1_800_000_000, 0)

func addrs(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func number(a string) string {
	b := netip.MustParseAddr(a).As4()
	return fmt.Sprintf("%08X", binary.NativeEndian.Uint32(b[:]))
}

// TestRead: of two interfaces' groups those of one that are told.
func TestRead(t *testing.T) {
	igmp := "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n" +
		"1\tlo        :     1      V3\n\t\t\t\t" + number("224.0.0.1") + "     1 0:00000000\t\t0\n" +
		"12\teth0      :     3      V3\n\t\t\t\t" + number("239.1.2.3") + "     1 0:00000000\t\t1\n\t\t\t\t" + number("224.0.0.251") + "     1 0:00000000\t\t1\n\t\t\t\t" + number("224.0.0.1") + "     1 0:00000000\t\t0\n" +
		"2\teth1      :     2      V3\n\t\t\t\t" + number("239.9.9.9") + "     1 0:00000000\t\t1\n"
	if got, want := fmt.Sprint(groups4(igmp, 12)), "[239.1.2.3 224.0.0.251]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	igmp6 := "1    lo              ff020000000000000000000000000001     1 0000000C 0\n" +
		"12   eth0            ff0200000000000000000000000000fb     1 00000004 0\n" +
		"12   eth0            ff0200000000000000000001ff000007     1 00000004 0\n" +
		"12   eth0            ff020000000000000000000000000001     1 0000000C 0\n" +
		"12   eth0            ff010000000000000000000000000001     1 00000008 0\n" +
		"2    eth1            ff050000000000000000000000001234     1 00000004 0\n"
	if got, want := fmt.Sprint(groups6(igmp6, 12)), "[ff02::fb]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, text := range []string{"", "\n", "\t\n \n", "12\n\t\t\t\tX\n", "12 eth0 ff02\n", "\xff"} {
		if got := append(groups4(text, 12), groups6(text, 12)...); len(got) > 0 {
			t.Errorf("%q is read as %s", text, got)
		}
	}
}

func textOf(b *book, endpoint string) string { return fmt.Sprint(b.told(endpoint)) }

// TestLinger: who joins is told at once, who leaves is told for some seconds more, and what comes and goes is told of once.
func TestLinger(t *testing.T) {
	b := newBook()
	b.restore("a", addrs("239.0.0.9"), start)
	b.see("a", addrs("239.0.0.1"), start)
	if got := textOf(b, "a"); got != "[239.0.0.1 239.0.0.9]" {
		t.Errorf("what the last agent told is not told on: %s", got)
	}
	for i := range 20 {
		var groups []netip.Addr
		if i%2 == 0 {
			groups = addrs("239.0.0.1")
		}
		b.see("a", groups, start.Add(time.Duration(i)*beat))
		if got := textOf(b, "a"); i > 10 && got != "[239.0.0.1]" {
			t.Errorf("a group that comes and goes is told as %s", got)
		}
	}
	b.see("a", nil, start.Add(30*time.Second))
	if got := textOf(b, "a"); got != "[]" || b.total != 0 {
		t.Errorf("who has left is told of: %s, %d", got, b.total)
	}
}

// TestBounds: however many a container joins, it has as many as one may, and takes none of another's.
func TestBounds(t *testing.T) {
	many := func(from, n int) (list []netip.Addr) {
		for i := range n {
			list = append(list, netip.AddrFrom4([4]byte{239, byte(from), byte(i >> 8), byte(i)}))
		}
		return list
	}
	b := newBook()
	b.see("honest", addrs("224.0.0.251"), start)
	b.see("hostile", many(1, 10000), start)
	if n := len(b.told("hostile")); n != cluster.MaxGroups || b.refused()["hostile"] != (refusal{groups: 10000 - n}) {
		t.Errorf("%d groups are told, %v refused", n, b.refused()["hostile"])
	}
	before := textOf(b, "hostile")
	b.see("hostile", append(many(0, 100), many(1, 10000)...), start.Add(time.Second))
	if got := textOf(b, "hostile"); got != before {
		t.Errorf("who has its groups loses them to new ones: %s, then %s", before, got)
	}
	for i := range 100 {
		b.see(fmt.Sprint("other", i), many(2+i, cluster.MaxGroups), start)
	}
	if b.total != cluster.MaxHostGroups {
		t.Errorf("%d groups of all are told, want %d", b.total, cluster.MaxHostGroups)
	}
	if got := textOf(b, "honest"); got != "[224.0.0.251]" || b.refused()["honest"].groups != 0 {
		t.Errorf("the others' groups cost an honest container its own: %s", got)
	}
	// Who comes late finds none left, and those are named that have them.
	b.see("late", addrs("224.0.0.252"), start)
	state := cluster.New("00000000000000aa")
	for _, id := range []string{"late", "hostile", "other1"} {
		if _, _, err := state.Put(cluster.Endpoint{ID: id, Network: "blue", Host: "00000000000000aa", Name: "c-" + id, Addrs: addrs("10.1.0.2")}); err != nil {
			t.Fatal(err)
		}
	}
	said := ""
	for _, p := range (&Room{book: b}).Problems(state.Snapshot()) {
		said += p.What + "\n"
	}
	for _, want := range []string{
		"container c-hostile gets nothing of 10036 multicast groups that it has joined on network blue: a container gets 64 groups\n",
		"container c-late gets nothing of 1 multicast groups that it has joined on network blue: all containers of a host get 1024 groups, and others here have them, most of all c-hostile (64), ",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("said %q, want %q", said, want)
		}
	}
	b.forget("late")
	for i := range 100 {
		b.forget(fmt.Sprint("other", i))
	}
	b.forget("hostile")
	if b.total != 1 || len(b.refused()) != 0 {
		t.Errorf("%d groups are told of containers that are gone, %v refused", b.total-1, b.refused())
	}
}
