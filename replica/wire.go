package replica

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/grapevine-net/grapevine/cluster"
)

// Digest says what this host knows, in bytes that are equal on two hosts if what
// they know is. They are shared and must not be written to.
func (r *Replica) Digest() []byte { return r.Snapshot().EncodedDigest() }

// Missing yields what the sender of digest lacks, in messages of about max bytes
// for its Merge. It yields nothing if there is nothing or digest is malformed.
func (r *Replica) Missing(digest []byte, max int) iter.Seq[[]byte] {
	d, err := cluster.DecodeDigest(digest)
	if err != nil {
		return func(func([]byte) bool) {}
	}
	var b [8]byte
	rand.Read(b[:]) // never fails
	return r.Snapshot().Answer(d, max, binary.BigEndian.Uint64(b[:])|1)
}

// Merge takes in a message from another host. It returns the part that was new
// here, as a message for the others (nil: nothing). The error holds a
// cluster.RefusedError for each record that was refused (cluster.Refusals); the
// rest of the message has been merged all the same, unless the disk failed. What
// it says about ownership of numbers, networks and subnets is durable when Merge
// returns, and the rest within some seconds.
func (r *Replica) Merge(msg []byte) (fresh []byte, err error) {
	m, bad := cluster.DecodeMessage(msg)
	if bad != nil && len(cluster.Refusals(bad)) == 0 {
		return nil, bad
	}
	recs, forged := r.verified(m.Records)
	bad = errors.Join(bad, forged)
	r.mu.Lock()
	defer r.mu.Unlock()
	next, held := r.state.Clone(), len(r.state.Pending())
	merged, refused := next.Merge(recs)
	whole := r.syncs.whole(m, bad == nil && !errors.Is(refused, cluster.ErrCounter))
	var incomplete error
	if whole {
		incomplete = next.Complete(*m.Complete)
	}
	if err := r.commit(next, urgent(merged)); err != nil {
		r.syncs.forget(m.Sync)
		r.miss()
		return nil, fmt.Errorf("merge into the cluster's state: %w", err)
	}
	if whole {
		r.caught()
	}
	r.lost.note(merged.Lost)
	pending := next.Pending()
	r.unproven.note(pending, r.now())
	err = errors.Join(bad, refused, incomplete)
	r.note(err)
	switch news := merged.News(); {
	case len(news) == 0:
	case len(news) >= many && len(news) == len(m.Records) && held+len(pending) == 0:
		fresh = msg
	default:
		fresh = cluster.Encode(news)
	}
	return fresh, err
}

// MergeAll merges messages that have come together, and returns of each what Merge does.
// It takes little more than Merge does for one: their signatures are verified at once, and
// what must be durable is written to the disk at once.
func (r *Replica) MergeAll(msgs [][]byte) (fresh [][]byte, errs []error) {
	fresh, errs = make([][]byte, len(msgs)), make([]error, len(msgs))
	if len(msgs) > 1 && r.mergeTogether(msgs, fresh) {
		return fresh, errs
	}
	for i, m := range msgs {
		fresh[i], errs[i] = r.Merge(m)
	}
	return fresh, errs
}

// mergeTogether merges messages without a fault, and parts of no answer. If there are others
// among them it does nothing and returns false.
func (r *Replica) mergeTogether(msgs, fresh [][]byte) bool {
	var recs []cluster.Record
	source := map[cluster.Version]int{} // the first message that has it
	for i, msg := range msgs {
		m, err := cluster.DecodeMessage(msg)
		if err != nil || m.Sync != 0 {
			return false
		}
		for _, rec := range m.Records {
			if _, again := source[rec.Version]; !again {
				source[rec.Version] = i
			}
			recs = append(recs, rec) // again too: it may be another one under the same version
		}
	}
	recs, err := r.verified(recs)
	if err != nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.state.Clone()
	merged, err := next.Merge(recs)
	if err != nil || r.commit(next, urgent(merged)) != nil {
		return false
	}
	r.lost.note(merged.Lost)
	r.unproven.note(next.Pending(), r.now())
	parts := make([][]cluster.Record, len(msgs))
	for _, rec := range merged.News() {
		i := source[rec.Version] // 0 if it was held, and one of these proves it
		parts[i] = append(parts[i], rec)
	}
	for i, part := range parts {
		if len(part) > 0 {
			fresh[i] = cluster.Encode(part)
		}
	}
	return true
}

// many are more records than fit into what gossip passes on of an answer: a message of
// so many that are all new, as a new host gets by the hundred, is not encoded again.
const many = 64

// verified returns the records that are known here already, to the bit, or signed
// by their writers; all, if records are not signed here.
func (r *Replica) verified(recs []cluster.Record) (good []cluster.Record, err error) {
	if r.verify == nil {
		return recs, nil
	}
	known := r.Snapshot().Known(recs)
	if !slices.Contains(known, true) {
		return r.verify(recs)
	}
	var unknown []cluster.Record
	for i, rec := range recs {
		if known[i] {
			good = append(good, rec)
		} else {
			unknown = append(unknown, rec)
		}
	}
	fresh, err := r.verify(unknown)
	return append(good, fresh...), err
}

// note remembers an error that means that this host's identity is spent.
func (r *Replica) note(err error) {
	all := cluster.Refusals(err)
	r.refused.count(all)
	for _, e := range all {
		if errors.Is(e, cluster.ErrLostWrites) {
			var trouble error = e
			r.trouble.CompareAndSwap(nil, &trouble)
			return
		}
	}
}

// urgent reports whether there is something in what was merged that has to be on the disk at once.
func urgent(m cluster.Merged) bool {
	return len(m.Gone) > 0 || slices.ContainsFunc(m.Fresh, func(rec cluster.Record) bool { return rec.Key.Kind.Urgent() })
}

// answers follows answers to digests that are coming in: only whoever has merged
// all the parts of one may take over the marks in its last part.
type answers struct {
	next  map[uint64]uint32 // by Sync: the part that has to come
	order []uint64          // of arrival
}

// maxAnswers is how many answers may come in at once; a host asks one or two
// peers at a time.
const maxAnswers = 32

// whole notes a message, and whether it could be merged, and reports whether it
// is the last part of an answer of which all parts were merged.
func (a *answers) whole(m cluster.Message, good bool) bool {
	if m.Sync == 0 {
		return false
	}
	want := a.next[m.Sync]
	switch {
	case !good || m.Part != want:
		a.forget(m.Sync)
		return false
	case m.Complete != nil:
		a.forget(m.Sync)
		return true
	}
	if want == 0 {
		a.begin(m.Sync)
	}
	a.next[m.Sync] = want + 1
	return false
}

func (a *answers) begin(sync uint64) {
	if a.next == nil {
		a.next = map[uint64]uint32{}
	}
	if a.order = append(a.order, sync); len(a.order) > maxAnswers {
		delete(a.next, a.order[0])
		a.order = a.order[1:]
	}
}

func (a *answers) forget(sync uint64) { delete(a.next, sync) }
