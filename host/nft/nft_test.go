package nft

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/link/linktest"
)

var drops = Table{Name: "t", Family: Inet, Chains: []Chain{{
	Name: "c", Type: "filter", Hook: unix.NF_INET_FORWARD,
	Rules: []Rule{{Comment: "for people", Exprs: []Expr{Meta(unix.NFT_META_IIFNAME), Equal(Name("gv0")), Counter(), Drop()}}},
}}}

// TestConn: a batch is done whole, or not at all and with its error, after which the next
// one is as good as the first.
func TestConn(t *testing.T) {
	linktest.New(t).Do(func() {
		c, err := Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if h, err := c.Handles(drops); len(h) != 0 || err != nil {
			t.Errorf("of no table: %v, %v", h, err)
		}
		bad := drops
		bad.Chains = append([]Chain{{Name: "no such type", Type: "nonsense", Hook: unix.NF_INET_FORWARD}}, drops.Chains...)
		for range 3 {
			if err := c.Do(bad.Make()); !errors.Is(err, unix.ENOENT) {
				t.Errorf("a chain of no type: %v", err)
			}
			if h, err := c.Handles(drops); len(h) != 0 || err != nil {
				t.Errorf("a part was done: %v, %v", h, err)
			}
		}
		for range 2 {
			if err := c.Do(drops.Anew()); err != nil {
				t.Fatal(err)
			}
			h, err := c.Handles(drops)
			if len(h) != 1 || err != nil {
				t.Errorf("rules %v, %v", h, err)
			}
		}
		for chain, want := range map[string]int{"": 1, drops.Chains[0].Name: 1, "other": 0} {
			n, err := c.Counts(drops, chain)
			if len(n) != want || err != nil || want > 0 && (n[0].Comment != "for people" || n[0].Chain != drops.Chains[0].Name || n[0].Packets != 0) {
				t.Errorf("counts of chain %q: %+v, %v", chain, n, err)
			}
		}
		out, err := exec.Command("nft", "list", "table", "inet", "t").CombinedOutput()
		if err != nil || !strings.Contains(string(out), `iifname "gv0" counter packets 0 bytes 0 drop comment "for people"`) {
			t.Errorf("nft: %s, %v", out, err)
		}
	})
}

// TestWatch: a change is heard of at once, and so is the end of the context.
func TestWatch(t *testing.T) {
	linktest.New(t).Do(func() {
		w, err := NewWatch()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		c, err := Dial()
		if err == nil {
			defer c.Close()
			err = c.Do(drops.Make())
		}
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := w.Wait(t.Context(), 5*time.Second); err != nil || time.Since(begin) > 900*time.Millisecond {
			t.Errorf("after a change: %v, in %v", err, time.Since(begin))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin = time.Now()
		if err := w.Wait(ctx, 5*time.Second); err != nil || time.Since(begin) > 900*time.Millisecond {
			t.Errorf("at its end: %v, in %v", err, time.Since(begin))
		}
	})
}

// FuzzAttributes: what the kernel is said to have sent makes no parser fail.
func FuzzAttributes(f *testing.F) {
	f.Add(drops.Make()[0])
	f.Add([]byte{4, 0, 1, 0, 3, 0, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range split(b) {
			_ = attribute(m[unix.NLMSG_HDRLEN+4:], unix.NFTA_RULE_HANDLE)
		}
		_ = attribute(b, unix.NFTA_RULE_HANDLE)
	})
}

// TestGenerations: the number is asked for again and again by one socket, and changes with the rules.
func TestGenerations(t *testing.T) {
	linktest.New(t).Do(func() {
		c, err := Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var g Generations
		defer g.Close()
		last := uint32(0)
		for i := range 5 {
			now, err := g.Now()
			if want, _ := c.Generation(); err != nil || now != want || i > 0 && now == last {
				t.Errorf("generation %d, %v; it is %d, and was %d", now, err, want, last)
			}
			last = now
			if err := c.Do(drops.Anew()); err != nil {
				t.Fatal(err)
			}
			if i == 2 {
				g.Close()
			}
		}
		if n := testing.AllocsPerRun(20, func() { _, _ = g.Now() }); n > 20 {
			t.Errorf("a question costs %v allocations", n)
		}
	})
}

// TestOwnedStays: what a Conn owns goes with it, and not with another socket of this process that is just being closed. Who has no number of
// its own gets the process's, if nobody has that at the moment; and the end of the one before is told while it waits for others' rules.
func TestOwnedStays(t *testing.T) {
	ns := linktest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	for range 2 { // others' rules, which what is closed waits for
		beside.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				name := fmt.Sprintf("t%d", rand.Uint64())
				cmd := exec.Command("nft", "-f", "-")
				cmd.Stdin = strings.NewReader("table ip " + name + " { set s { type ipv4_addr; flags interval; } }\ndelete table ip " + name + "\n")
				ns.Do(func() { _ = cmd.Run() })
			}
		})
		beside.Go(func() { // sockets that come and go
			for ctx.Err() == nil {
				ns.Do(func() {
					if fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER); err == nil {
						_ = errors.Join(unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}), unix.Close(fd))
					}
				})
			}
		})
	}
	gone := 0
	const tries = 40
	for range tries {
		table := Table{Name: fmt.Sprintf("ours%d", rand.Uint64()), Family: unix.AF_INET, Owned: true}
		var c *Conn
		var err error
		ns.Do(func() {
			if c, err = DialInside(func(bool) {}); err == nil {
				err = c.Do(table.Make())
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
		ns.Do(func() { err = exec.Command("nft", "list", "table", "ip", table.Name).Run() })
		if err != nil {
			gone++
		}
		c.Close()
	}
	if gone > 0 {
		t.Errorf("%d of %d tables are gone while their socket is there", gone, tries)
	}
}
