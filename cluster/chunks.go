package cluster

import "iter"

// Chunks encodes records as messages of at most about max bytes each; a record
// that is larger has a message of its own.
func Chunks(recs iter.Seq[Record], max int) iter.Seq[[]byte] {
	return chunks(recs, max, wireMessage{})
}

// Answer encodes the answer to a digest: all the records that a snapshot has and
// the digest lacks, in messages of at most about max bytes, and the snapshot's own
// digest in the last one. sync names the answer; it must not be 0, nor one that
// the receiver may remember. The answer to a digest that covers everything is empty.
func (s *Snapshot) Answer(d Digest, max int, sync uint64) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		own := s.Digest()
		if d.covers(own) {
			return
		}
		chunks(s.Missing(d), max, wireMessage{Sync: sync, Last: true, Complete: s.EncodedDigest()[1:]})(yield)
	}
}

// covers reports whether a host with digest d can have nothing to learn from one
// with digest o.
func (d Digest) covers(o Digest) bool {
	for node, counter := range o.Marks {
		if d.Marks[node] < counter {
			return false
		}
	}
	return o.Early == 0 || o.Early == d.Early
}

// chunks numbers the messages if last has a Sync, and then ends with last.
func chunks(recs iter.Seq[Record], max int, last wireMessage) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		next, size, keys := wireMessage{Sync: last.Sync}, 0, keyTable{}
		for r := range recs {
			raw := encodeRecord(r)
			if len(next.Records) > 0 && (size+len(raw) > max || len(next.Records) == maxItems) {
				next.Keys = keys.list()
				if !yield(next.encode()) {
					return
				}
				next, size, keys = wireMessage{Sync: last.Sync, Part: next.Part + 1}, 0, keyTable{}
			}
			next.Records, size = append(next.Records, raw), size+len(raw)+keys.add(&r)
		}
		last.Records, last.Part, last.Keys = next.Records, next.Part, keys.list()
		if len(last.Records) > 0 || last.Last {
			yield(last.encode())
		}
	}
}
