package gossip

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

// summary is what hosts compare about once a second: the body of kindSum.
//
//	hash of the State's digest 16 | members 8 | address of the sender
type summary struct {
	state   []byte
	members uint64
	addr    netip.AddrPort
}

func (s summary) encode() []byte {
	b := binary.BigEndian.AppendUint64(bytes.Clone(s.state), s.members)
	return append(b, s.addr.String()...)
}

func decodeSummary(b []byte) (s summary, err error) {
	if len(b) < 24 {
		return s, errShort
	}
	if s.addr, err = netip.ParseAddrPort(string(b[24:])); err != nil {
		return s, fmt.Errorf("summary: %w", err)
	}
	s.state, s.members = b[:16], binary.BigEndian.Uint64(b[16:])
	return s, nil
}

// memberHash stands for a living host; the members of a summary are the exclusive
// or of those of all hosts that its sender takes for alive, itself included.
func memberHash(id string, addr netip.AddrPort) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	ip := addr.Addr().As16()
	_, _ = h.Write(ip[:])
	_, _ = h.Write(binary.BigEndian.AppendUint16(nil, addr.Port()))
	return h.Sum64()
}

// meeter exchanges the members with hosts that see others, or that are not heard.
type meeter struct {
	*core
	watch  *watch
	roster *roster
	prover *prover
	post   *post
	others chan summary // of hosts that see other members
}

// offer has loop meet the sender of a summary, if it has nothing else to do.
func (m *meeter) offer(s summary) {
	select {
	case m.others <- s:
	default: // one at a time
	}
}

// loop does a push/pull with a peer that sees other members than we do.
// memberlist's gossip may miss a host, above all while a cluster forms, and its
// own push/pull comes every fifteen seconds or less. It also meets hosts that we
// have not heard of, though they have of us.
//
// A difference that this did not mend is left alone for longer and longer, since there are
// peers that see others for good; but another difference is news.
func (m *meeter) loop(ctx context.Context) {
	var next backoff
	tried := differences{}
	for {
		var s summary
		select {
		case <-ctx.Done():
			return
		case s = <-m.others:
		}
		if !next.due(time.Now()) || !sleep(ctx, grace) || s.members == m.roster.members.Load() {
			continue
		}
		before := m.roster.members.Load()
		limit := 30 * m.cfg.Timing.Digest
		retry := tried.of(before^s.members, time.Now(), limit)
		if !retry.due(time.Now()) {
			continue
		}
		if err := m.post.exchange(s.addr); err != nil {
			m.log.Debug("compare members", "addr", s.addr, "err", err)
		}
		retry.failed(time.Now(), m.cfg.Timing.Digest/2, limit)
		next.reset()
		next.failed(time.Now(), m.cfg.Timing.Digest/2, m.cfg.Timing.Digest/2)
	}
}

// maxDifferences bounds how many are remembered.
const maxDifferences = 64

// differences are those between the members of two hosts, by the exclusive or of both, that
// were to be mended.
type differences map[uint64]*backoff

// of is when a difference may be tried again. One that was not seen for limit is a new one: a
// host that comes and goes makes the same one each time, for as long as the agent runs.
func (d differences) of(difference uint64, now time.Time, limit time.Duration) *backoff {
	retry := d[difference]
	if retry == nil && len(d) >= maxDifferences {
		clear(d)
	}
	if retry == nil || now.Sub(retry.next) > limit {
		retry = &backoff{}
		d[difference] = retry
	}
	return retry
}

// absences are the hosts that this one hears nothing of.
type absences map[nodeID]*absence

type absence struct {
	retry   backoff
	meeting atomic.Bool
}

// absent does a push/pull with hosts that are taken for alive and of which this one, who
// watches them, hears nothing. Such a host may have been started anew and know nobody: it
// sends its beats to no one, and as all take it for alive no one dials it. If it is dead, that
// fails until memberlist says so. One of which beats came before is asked to prove that it is there:
// its numbers may have begun anew, so that what it says is refused.
func (m *meeter) absent(met absences, unheard []nodeID, now time.Time) {
	for id := range met {
		if !slices.Contains(unheard, id) {
			delete(met, id)
		}
	}
	first, limit := m.cfg.Timing.Digest/2, 30*m.cfg.Timing.Digest
	for _, id := range unheard {
		a := met[id]
		if a == nil {
			a = &absence{}
			a.retry.failed(now, first, limit) // who has just come has a moment to be heard
			met[id] = a
		}
		addr := m.roster.lastAddr(id.String())
		if !a.retry.due(now) || !addr.IsValid() || a.meeting.Swap(true) {
			continue
		}
		a.retry.failed(now, first, limit)
		if !m.work.spawn(func(ctx context.Context) {
			defer a.meeting.Store(false)
			if m.watch.refuses(id) {
				if _, there := m.prover.whoIs(ctx, id, addr, proofPatience); there {
					m.watch.anew(id)
				}
			}
			if err := m.post.exchange(addr); err != nil {
				m.log.Debug("meet a host that is not heard", "host", id, "addr", addr, "err", err)
			}
		}) {
			return
		}
	}
}
