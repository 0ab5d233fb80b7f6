package paths

import (
	"cmp"
	"slices"
	"time"
)

// Gossip goes by packets (UDP) and by streams (TCP), and a firewall may let one of the two
// through. Hosts stay alive for each other by either, so nothing else tells. A host tries both
// with each other one every three seconds, if there are no more than fifty of them, so that what does not
// pass is said within ten; and again at once with those of which one failed. One is at
// fault only while the other passes: a host that is off, starts or is cut off has neither.
//
// A try of streams opens one to the other host, and the other host one back. So who has been tried by another one knows
// as much as that one, and tries packets alone, which cost a fifth. Which of two hosts it is comes about by itself: who tries is not
// tried. It goes on every three seconds, and the other one waits a moment longer before it tries streams itself. A try of both sends
// some 400 bytes each way, and takes 0.6 ms of processor at both ends together.

const (
	allEvery  = 3 * time.Second // up to fifty of them: then three tries can fail within ten
	leastTurn = allEvery / 50   // between two, however many there are
	catchUp   = time.Second     // for who is late, as who asks does so once a second
	early     = catchUp / 2     // whose time comes by then is not to wait for the next question
	overdue   = catchUp / 5     // may who tries this host be
	// packetsEvery is how often packets alone are tried: two tries can fail within ten.
	packetsEvery = 5 * time.Second
	atOnce       = 16              // tries under way, twice as many as that
	atLeast      = 3 * time.Second // between the begin of the first try that fails, and a trouble
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
}

type contact struct {
	trying  time.Time // since when; zero: it is not
	tried   time.Time // when the last try began
	full    time.Time // when the last one of streams, too, did
	shown   time.Time // when this host answered the other one's last
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

// Shown notes when a host tried streams to this one last, and was answered by one.
func (c *Contacts) Shown(id string, at time.Time) {
	if p := c.peers[id]; p != nil {
		p.shown = at
	}
}

// Due is a host that is to be tried.
type Due struct {
	Host    string
	Packets bool // alone
}

// Due returns the hosts that are to be tried now: those that wait for longest, and those of which
// something failed the last time. Each is noted later (Note).
func (c *Contacts) Due(now time.Time) (list []Due) {
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
	by := func(since func(*contact) time.Time) func(a, b string) int {
		return func(a, b string) int {
			return cmp.Or(since(c.peers[a]).Compare(since(c.peers[b])), cmp.Compare(a, b))
		}
	}
	slices.SortFunc(others, by(func(p *contact) time.Time { return p.tried }))
	if earliest := now.Add(-catchUp); c.turn.Before(earliest) {
		c.turn = earliest
	}
	every := max(allEvery, leastTurn*time.Duration(len(others)))
	patience := (every - early).Truncate(catchUp) + catchUp + overdue // who asks does so once a second, there as well
	for _, id := range others {
		if running+len(list) >= atOnce {
			break
		}
		p := c.peers[id]
		shown := now.Sub(p.shown) < patience
		switch {
		case !shown && now.Sub(p.full) >= every-early && !now.Before(c.turn):
			c.turn = c.turn.Add(every / time.Duration(len(others)))
			list = append(list, Due{Host: id})
		case shown && now.Sub(p.tried) >= max(every, packetsEvery)-early:
			list = append(list, Due{Host: id, Packets: true})
		}
	}
	slices.SortFunc(suspects, by(func(p *contact) time.Time { return p.tried }))
	for _, id := range suspects[:min(len(suspects), max(0, atOnce-running-len(list)))] {
		list = append(list, Due{Host: id})
	}
	for _, d := range list {
		p := c.peers[d.Host]
		if p.trying, p.tried = now, now; !d.Packets {
			p.full = now
		}
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
			*p = contact{tried: p.tried, full: p.full, shown: p.shown}
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
		*p = contact{tried: p.tried, full: p.full, shown: p.shown, trouble: found, since: began}
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
