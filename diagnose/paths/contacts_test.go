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
		for _, id := range c.Due(now) {
			results[id], ends[id] = answer(id, at), at
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
		for _, id := range c.Due(now) {
			now = now.Add(time.Minute)
			c.Note(id, Tried{Packet: errors.New("no")}, now)
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
	if tries < 100 || tries > 170 {
		t.Errorf("%d tries in ten seconds", tries)
	}
}
