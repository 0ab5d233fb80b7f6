package paths

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// contactRun has a host try others, which answer as answer says, each try taking two seconds if
// something fails, and returns what is said after that time.
func contactRun(c *Contacts, hosts []string, from, to time.Duration, answer func(host string, at time.Duration) Tried) (said []Contact) {
	return contactRunTried(c, hosts, from, to, answer, func(string, time.Duration) (time.Duration, bool) { return 0, false })
}

// contactRunTried is contactRun of a host that others try, too: tried is when one last did before a time.
func contactRunTried(c *Contacts, hosts []string, from, to time.Duration, answer func(host string, at time.Duration) Tried, tried func(host string, at time.Duration) (time.Duration, bool)) (said []Contact) {
	epoch := time.Unix(1_700_000_000, 0)
	ends := map[string]time.Duration{}
	results := map[string]Tried{}
	for at := from; at < to; at += 500 * time.Millisecond {
		now := epoch.Add(at)
		for id, end := range ends {
			if at >= end {
				c.Note(id, results[id], now)
				delete(ends, id)
			}
		}
		c.Set(hosts)
		for _, id := range hosts {
			if last, is := tried(id, at); is {
				c.Shown(id, epoch.Add(last))
			}
		}
		for _, due := range c.Due(now) {
			id := due.Host
			results[id], ends[id] = answer(id, at), at
			if due.Packets && results[id].Packet == nil {
				results[id] = Tried{}
			}
			if t := results[id]; t.Call != nil || t.Packet != nil {
				ends[id] = at + 2*time.Second
			}
		}
	}
	for id, end := range ends {
		if end <= to {
			c.Note(id, results[id], epoch.Add(to))
			delete(ends, id)
		}
	}
	said = c.Contacts()
	for id, end := range ends {
		c.Note(id, results[id], epoch.Add(end))
	}
	return said
}

func TestContacts(t *testing.T) {
	no := errors.New("no")
	noStream, noAnswer, noPackets, nothing := Tried{Call: no, Dial: no}, Tried{Call: no}, Tried{Packet: no}, Tried{Call: no, Dial: no, Packet: no}
	const now = 10 * time.Second
	for name, c := range map[string]struct {
		of   func(at time.Duration) Tried // host b
		want Trouble
	}{
		"well":                     {func(time.Duration) Tried { return Tried{} }, None},
		"streams cannot be opened": {func(time.Duration) Tried { return noStream }, NoStream},
		"no answer to calls":       {func(time.Duration) Tried { return noAnswer }, NoAnswer},
		"no packets":               {func(time.Duration) Tried { return noPackets }, NoPackets},
		"off":                      {func(time.Duration) Tried { return nothing }, None},
		"a packet lost":            {func(at time.Duration) Tried { return map[bool]Tried{at < time.Second: noPackets}[true] }, None},
		"every other try fails":    {func(at time.Duration) Tried { return map[bool]Tried{at/time.Second%4 < 2: noStream}[true] }, None},
		"as it ends, off, as it starts": {func(at time.Duration) Tried {
			switch {
			case at < time.Second:
				return noStream
			case at < 6*time.Second:
				return nothing
			}
			return noAnswer
		}, None},
		"it starts for long": {func(time.Duration) Tried { return Tried{Call: no, Doubtful: true} }, None},
		"it passes again": {func(at time.Duration) Tried {
			if at < 7*time.Second {
				return noStream
			}
			return Tried{}
		}, None},
		"it also is off for a moment": {func(at time.Duration) Tried {
			if at > 8*time.Second {
				return nothing
			}
			return noStream
		}, NoStream},
	} {
		t.Run(name, func(t *testing.T) {
			got := contactRun(NewContacts(), []string{"a", "b", "c"}, 0, now, func(host string, at time.Duration) Tried {
				if host == "b" {
					return c.of(at)
				}
				return Tried{}
			})
			if c.want == None && len(got) > 0 || c.want != None && (len(got) != 1 || got[0].Host != "b" || got[0].Trouble != c.want || got[0].Err == nil) {
				t.Errorf("got %+v, want %v", got, c.want)
			}
		})
	}
}

// TestContactsOfMany: each host has its turn, however many are at fault; never are more than a
// few tried at once; who is gone is not spoken of.
func TestContactsOfMany(t *testing.T) {
	var hosts []string
	for i := range 60 {
		hosts = append(hosts, fmt.Sprintf("%02d", i))
	}
	c := NewContacts()
	most := 0
	got := contactRun(c, hosts, 0, 2*time.Minute, func(string, time.Duration) Tried {
		running := 0
		for _, p := range c.peers {
			if !p.trying.IsZero() {
				running++
			}
		}
		most = max(most, running)
		return Tried{Call: errors.New("no"), Dial: errors.New("no")}
	})
	if len(got) != len(hosts) || most > atOnce {
		t.Errorf("%d of %d hosts, %d at once", len(got), len(hosts), most)
	}
	if got := contactRun(c, hosts[:1], 2*time.Minute, 3*time.Minute, func(string, time.Duration) Tried { return Tried{} }); len(got) > 0 {
		t.Errorf("they pass, or are gone: %v", got)
	}
}

// TestContactsOfAHostThatSlept: what was tried before it and ended after it says nothing.
func TestContactsOfAHostThatSlept(t *testing.T) {
	c := NewContacts()
	now := time.Unix(1_700_000_000, 0)
	c.Set([]string{"b"})
	for range 5 {
		for _, due := range c.Due(now) {
			now = now.Add(time.Minute)
			c.Note(due.Host, Tried{Packet: errors.New("no")}, now)
		}
		now = now.Add(allEvery)
	}
	if got := c.Contacts(); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

// TestContactsInTime: of up to fifty hosts it is said within ten seconds which one it is that a way does not
// lead to, whenever that begins.
func TestContactsInTime(t *testing.T) {
	no := errors.New("no")
	for _, n := range []int{2, 3, 5, 6, 17, 50} {
		var hosts []string
		for i := range n - 1 {
			hosts = append(hosts, fmt.Sprintf("%02d", i))
		}
		slowest := time.Duration(0)
		for _, bad := range []Tried{{Call: no, Dial: no}, {Call: no}, {Packet: no}} {
			for i, victim := range hosts {
				if i%5 > 0 && i < n-2 {
					continue
				}
				begin, took := 6*time.Second+time.Duration(i%7)*100*time.Millisecond, time.Duration(0)
				for said := false; !said; {
					if took += 500 * time.Millisecond; took > 10*time.Second {
						t.Fatalf("of %d hosts it is not said of host %s what it does not answer: %+v", n, victim, bad)
					}
					said = len(contactRun(NewContacts(), hosts, 0, begin+took, func(host string, at time.Duration) Tried {
						if host == victim && at >= begin {
							return bad
						}
						return Tried{}
					})) > 0
				}
				slowest = max(slowest, took)
			}
		}
		t.Logf("of %d hosts it is said within %v", n, slowest)
	}
}

// TestContactsOfAThousand: however many hosts there are, as many are tried in a second as of fifty.
func TestContactsOfAThousand(t *testing.T) {
	var hosts []string
	for i := range 999 {
		hosts = append(hosts, fmt.Sprintf("%03d", i))
	}
	tries := 0
	contactRun(NewContacts(), hosts, 0, 10*time.Second, func(string, time.Duration) Tried { tries++; return Tried{} })
	if tries < 100 || tries > 180 {
		t.Errorf("%d tries in ten seconds", tries)
	}
}

// TestContactsTried: who is tried by another host tries packets alone, and tries streams, too, as soon as that one does not come any
// more: what does not pass is said within ten seconds by either.
func TestContactsTried(t *testing.T) {
	no := errors.New("no")
	for _, bad := range []Tried{{}, {Call: no}, {Call: no, Dial: no}, {Packet: no}} {
		for phase := time.Duration(0); phase < allEvery; phase += 250 * time.Millisecond {
			const begin = 20 * time.Second
			said, took := false, time.Duration(0)
			for ; !said && took <= 10*time.Second; took += 500 * time.Millisecond {
				said = len(contactRunTried(NewContacts(), []string{"a", "b"}, 0, begin+took, func(host string, at time.Duration) Tried {
					if at >= begin && host == "a" {
						return bad
					}
					return Tried{}
				}, func(host string, at time.Duration) (time.Duration, bool) {
					if bad.Call != nil {
						at = min(at, begin)
					}
					return (at-phase)/allEvery*allEvery + phase, at >= phase
				})) > 0
			}
			if want := bad.Call != nil || bad.Packet != nil; said != want {
				t.Errorf("%+v, tried %v after a multiple of %v: said within ten seconds: %t", bad, phase, allEvery, said)
			}
		}
	}
	c, full, packets := NewContacts(), 0, 0
	c.Set([]string{"a"})
	for at := time.Unix(1_700_000_000, 0); full+packets < 20; at = at.Add(time.Second) {
		c.Shown("a", at.Truncate(allEvery))
		for _, due := range c.Due(at) {
			if due.Packets {
				packets++
			} else {
				full++
			}
			c.Note(due.Host, Tried{}, at)
		}
	}
	if full > 0 {
		t.Errorf("it tries streams %d times of %d, though it is tried", full, full+packets)
	}
}

// TestContactsOfTwo: of two hosts that begin at any time one comes to try streams, and the other one does not.
func TestContactsOfTwo(t *testing.T) {
	for phase := time.Duration(0); phase < time.Second; phase += 100 * time.Millisecond {
		a, b := NewContacts(), NewContacts()
		var shownA, shownB time.Time // by the other one
		var full [2]int
		began := time.Unix(1_700_000_000, 0)
		look := func(i int, c *Contacts, now time.Time, shown time.Time, shows *time.Time) {
			c.Set([]string{"other"})
			c.Shown("other", shown)
			for _, due := range c.Due(now) {
				if !due.Packets {
					*shows = now
					if now.Sub(began) > 30*time.Second {
						full[i]++
					}
				}
				c.Note(due.Host, Tried{}, now)
			}
		}
		for at := began; at.Sub(began) < 330*time.Second; at = at.Add(time.Second) {
			look(0, a, at, shownA, &shownB)
			look(1, b, at.Add(phase), shownB, &shownA)
		}
		if most, least := max(full[0], full[1]), min(full[0], full[1]); least > 0 || most < 99 || most > 100 {
			t.Errorf("one looks %v behind the other: they try streams %v times in 300 s", phase, full)
		}
	}
}
