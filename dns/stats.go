package dns

import "sync/atomic"

// Stats are counts since the start. Queries is the sum of the others and of those
// under way.
type Stats struct {
	Queries   uint64 // questions heard
	Answered  uint64 // answered here
	Forwarded uint64 // answered by another server
	Failed    uint64 // forwarded, and nobody answered in time
	Refused   uint64 // at the gateway: of nobody we know, or not ours and from internal networks only
	Dropped   uint64 // no message of DNS
	// Inside is in how many sandboxes it serves now, Outside those that it could not
	// enter when it tried last.
	Inside, Outside int
}

type counts struct {
	queries, answered, forwarded, failed, refused, dropped atomic.Uint64
}

// Stats returns the counts.
func (s *Server) Stats() Stats {
	c := &s.counts
	stats := Stats{
		Queries: c.queries.Load(), Answered: c.answered.Load(), Forwarded: c.forwarded.Load(),
		Failed: c.failed.Load(), Refused: c.refused.Load(), Dropped: c.dropped.Load(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.sandboxes {
		switch a.state {
		case inside:
			stats.Inside++
		case shutOut:
			stats.Outside++
		}
	}
	return stats
}
