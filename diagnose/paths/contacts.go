package paths

import (
	"cmp"
	"slices"
	"time"
)

// Gossip goes by packets (UDP) and by streams (TCP), and a firewall may let one of the two
// through. Hosts stay alive for each other by either, so nothing else tells. A host tries both
// with each other one every three and a half seconds, if there are no more than fifty of them, so that what does not
// pass is said within ten; and again at once with those of which one failed. One is at
// fault only while the other passes: a host that is off, starts or is cut off has neither. A try sends
// some 400 bytes each way, and takes 0.6 ms of processor at both ends together: 1 % of one on fifty hosts.

const (
	allEvery  = 3500 * time.Millisecond // up to fifty of them: then three tries of two seconds each can fail within ten
	leastTurn = allEvery / 50           // between two, however many there are
	catchUp   = time.Second             // for who is late, as who asks does so once a second
	atOnce    = 16                      // tries under way, twice as many as that
	atLeast   = 3 * time.Second         // between the begin of the first try that fails, and a trouble
	// rounds is how many tries have to fail in a row; answerRounds those of which only an answer
	// is missing, as of a host that is too busy for a while.
	rounds, answerRounds = 2, 3
	// stale is how long a try takes only on a host that did not run meanwhile.
	stale = 5 * time.Second
)

// Tried is what one try showed.
type Tried struct {
	Call   error // was not answered: why; nil: it was
	Dial   error // no stream could be opened
	Packet error // none was answered
	// Doubtful: those who watch the host hear nothing of it. A host that begins answers packets
	// before it answers calls, and is in doubt until then.
	Doubtful bool
}

// Trouble is what does not pass between this host and another one.
type Trouble uint8

// The troubles of contacts.
const (
	None      Trouble = iota
	NoStream          // from here: it cannot be opened
	NoAnswer          // to a call, though streams from here can be opened
	NoPackets         // there and back
)

// Contact is a host with a trouble.
type Contact struct {
	Host    string
	Trouble Trouble
	Since   time.Time
	Err     error
}

// Contacts is what a host knows of the ways of gossip. Its methods are called by one goroutine.
type Contacts struct {
	peers map[string]*contact
	turn  time.Time // of the next host: when
	last  string    // the one whose turn was last
}

type contact struct {
	trying  time.Time // since when; zero: it is not
	tried   time.Time // when the last try began
	trouble Trouble   // of the last tries
	failed  int
	since   time.Time
	err     error
	said    bool // it counts until a try passes
}

// NewContacts returns an empty table.
func NewContacts() *Contacts { return &Contacts{peers: map[string]*contact{}} }

// Set declares the other hosts that are alive. Who is not is none to be tried.
func (c *Contacts) Set(alive []string) {
	for id := range c.peers {
		if !slices.Contains(alive, id) {
			delete(c.peers, id)
		}
	}
	for _, id := range alive {
		if c.peers[id] == nil {
			c.peers[id] = &contact{}
		}
	}
}

// Due returns the hosts that are to be tried now: the next one in turn, and those of which
// something failed the last time. Each is noted later (Note).
func (c *Contacts) Due(now time.Time) (list []string) {
	running := 0
	var suspects, others []string
	for id, p := range c.peers {
		switch {
		case !p.trying.IsZero():
			running++
		case p.trouble != None:
			suspects = append(suspects, id)
		default:
			others = append(others, id)
		}
	}
	slices.Sort(others)
	if earliest := now.Add(-catchUp); c.turn.Before(earliest) {
		c.turn = earliest
	}
	for len(list) < len(others) && !now.Before(c.turn) && running+len(list) < atOnce {
		at, found := slices.BinarySearch(others, c.last)
		if found {
			at++
		}
		c.last, c.turn = others[at%len(others)], c.turn.Add(max(leastTurn, allEvery/time.Duration(len(others))))
		list = append(list, c.last)
	}
	slices.SortFunc(suspects, func(a, b string) int {
		return cmp.Or(c.peers[a].tried.Compare(c.peers[b].tried), cmp.Compare(a, b))
	})
	list = append(list, suspects[:min(len(suspects), max(0, atOnce-running-len(list)))]...)
	for _, id := range list {
		c.peers[id].trying, c.peers[id].tried = now, now
	}
	return list
}

// Note takes the result of a try that Due asked for.
func (c *Contacts) Note(id string, t Tried, now time.Time) {
	p := c.peers[id]
	if p == nil || p.trying.IsZero() {
		return // it has gone meanwhile
	}
	began := p.trying
	p.trying = time.Time{}
	found, err := None, error(nil)
	switch {
	case t.Call != nil && t.Packet != nil, now.Sub(began) > stale:
		if !p.said { // it is off, or begins anew, or this host is
			*p = contact{tried: p.tried}
		}
		return
	case t.Packet != nil:
		found, err = NoPackets, t.Packet
	case t.Call != nil && t.Doubtful:
		return
	case t.Dial != nil:
		found, err = NoStream, t.Dial
	case t.Call != nil:
		found, err = NoAnswer, t.Call
	}
	if found != p.trouble {
		*p = contact{tried: p.tried, trouble: found, since: began}
	}
	if found == None {
		return
	}
	p.failed, p.err = p.failed+1, err
	want := rounds
	if found == NoAnswer {
		want = answerRounds
	}
	p.said = p.said || p.failed >= want && now.Sub(p.since) >= atLeast
}

// Contacts are those with a trouble, by the hosts' IDs.
func (c *Contacts) Contacts() (list []Contact) {
	for id, p := range c.peers {
		if p.said {
			list = append(list, Contact{id, p.trouble, p.since, p.err})
		}
	}
	slices.SortFunc(list, func(a, b Contact) int { return cmp.Compare(a.Host, b.Host) })
	return list
}
