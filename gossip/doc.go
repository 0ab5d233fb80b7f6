// Package gossip keeps the hosts of a cluster in touch: it finds them, tells
// who is alive, spreads what one of them says to all, mends what was lost, and
// carries calls between any two. It does not know what the payload means: that
// is the State's affair.
//
// It stands on hashicorp/memberlist (SWIM with Lifeguard). What it adds:
//
//   - A cluster has an ID. A host without one takes that of the first cluster it
//     meets; hosts of different clusters refuse each other, and no payload
//     passes between hosts before both have the same ID.
//   - Lost peers are dialled again for ever, so a healed partition heals.
//   - Anti-entropy: hosts compare a hash of their State's digest, in every
//     push/pull and about once a second with a random peer; where the hashes
//     differ, each fetches from the other what it lacks, in acknowledged chunks.
//     A lost broadcast is mended by this, as is a host that was away for long.
//   - Doubt: a host sends beats to a few others, and when two of those hear nothing of
//     it all know within a second or so. It is alive all the same, until SWIM is sure
//     of the contrary (doubt.go).
//   - Calls: request and response over memberlist's reliable messages.
//
// # Messages
//
// Everything but memberlist's own messages is an envelope (envelope.go) inside a
// memberlist user message, encrypted with AES-GCM by memberlist. A delta of at
// most MaxBroadcast bytes travels by gossip, in UDP packets. A larger one is
// sent reliably to a few random peers, each of which passes on what was new to
// it; whoever is left out learns by anti-entropy. Queues are bounded: what
// overflows is dropped and counted, and again anti-entropy mends it.
//
// # Who has no key
//
// A stream's message is read here, within what its sender is allowed, and memberlist sees it
// only if a key opens it (door.go, guests.go). Packets are looked at in the buffer that they are
// read into (screen.go). So whoever has no key costs a bounded amount of memory, and keeps
// nobody out.
//
// # Versions
//
// A host says in its meta which protocol versions it speaks, writes the newest that
// all members that answer speak, and answers in that of the question. So hosts are
// upgraded one after the other, and may go back.
//
// # Goroutines
//
// New listens, and memberlist answers from then on. Run owns every other
// goroutine, and returns only when all have ended. Callbacks of memberlist copy
// and return; they never block.
package gossip
