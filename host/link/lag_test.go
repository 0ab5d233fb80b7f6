package link

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

// A kernel without netem says so, and nothing has changed; with it, packets are later, and some of them lost, before a bucket and without one.
func TestLag(t *testing.T) {
	host, box := linktest.New(t), linktest.New(t)
	sandbox := fmt.Sprintf("/proc/self/fd/%d", box.FD())
	linktest.Wire(t, "gv0123", host, box, []string{"10.9.0.1/24"}, []string{"10.9.0.2/24"})
	limit := func(l Limits) (err error) {
		host.Do(func() { err = Limit("gv0123", sandbox, l) })
		return err
	}
	qdiscs := func() (has []string) {
		box.Do(func() {
			list, err := netlink.QdiscList(nil)
			ok(t, err)
			for _, q := range list {
				if q.Attrs().Handle != 0 {
					has = append(has, q.Type())
				}
			}
		})
		return has
	}
	var can error
	host.Do(func() { can = CanLag() })
	ok(t, limit(Limits{Egress: 20e6}))
	if can != nil {
		if !errors.Is(can, ErrNoLag) {
			t.Fatal(can)
		}
		if err := limit(Limits{Egress: 10e6, Lag: Lag{Delay: 50 * time.Millisecond}}); !errors.Is(err, ErrNoLag) || errors.Is(err, ErrNotFound) {
			t.Errorf("a delay without netem: %v", err)
		}
		if got := strings.Join(qdiscs(), " "); got != "tbf" {
			t.Errorf("after a delay without netem there is %q, want tbf", got)
		}
		box.Do(func() { // the bandwidth holds all the same
			list, err := netlink.LinkList()
			ok(t, err)
			for _, l := range list {
				if l.Type() == "veth" {
					if tbf, _ := bucket(t, l.Attrs().Name); tbf.Rate != 10e6/8 {
						t.Errorf("without netem a rate of %d bytes a second, want %d", tbf.Rate, int(10e6/8))
					}
				}
			}
		})
		return
	}
	for _, step := range []struct {
		limits Limits
		has    string
		rtt    time.Duration // at least
		lost   int           // at least, of 200
	}{
		{Limits{Egress: 20e6, Lag: Lag{Delay: 50 * time.Millisecond}}, "netem tbf", 50 * time.Millisecond, 0},
		{Limits{Lag: Lag{Delay: 30 * time.Millisecond, Jitter: 10 * time.Millisecond}}, "netem", 20 * time.Millisecond, 0},
		{Limits{Egress: 20e6, Lag: Lag{Loss: 0.5}}, "netem tbf", 0, 50},
		{Limits{Egress: 20e6}, "tbf", 0, 0},
		{Limits{Lag: Lag{Loss: 1}}, "netem", 0, 200},
		{Limits{}, "", 0, 0},
	} {
		for range 2 {
			ok(t, limit(step.limits))
		}
		if got := strings.Join(qdiscs(), " "); got != step.has {
			t.Errorf("%+v: qdiscs %q, want %q", step.limits, got, step.has)
		}
		var out []byte
		host.Do(func() {
			out, _ = exec.Command("ping", "-q", "-c", "200", "-i", "0.002", "-W", "1", "10.9.0.2").CombinedOutput()
		})
		got := regexp.MustCompile(`(\d+) received`).FindSubmatch(out)
		if got == nil {
			t.Fatalf("%s", out)
		}
		n, _ := strconv.Atoi(string(got[1]))
		if lost := 200 - n; lost < step.lost || step.lost == 0 && lost != 0 || step.lost == 50 && lost > 150 {
			t.Errorf("%+v: %d of 200 are lost", step.limits, lost)
		}
		if rtt := regexp.MustCompile(`= ([\d.]+)/`).FindSubmatch(out); step.rtt != 0 && rtt != nil {
			if least, _ := strconv.ParseFloat(string(rtt[1]), 64); least*1e6 < float64(step.rtt) {
				t.Errorf("%+v: there and back in %v ms", step.limits, least)
			}
		}
	}
}
