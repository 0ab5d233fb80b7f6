package gossip

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Who is where memberlist tells in words that nobody has signed, and that somebody may have
// recorded. What would do harm if they were wrong is done only after a proof: whoever is at
// an address signs a number that it has just been told, with the key that the ID stands for.
//
//	prove: nonce 16 | node 8  ->  run 8 | signature
//
// Who is asked need not have been met, and may speak any version: question and answer have the form
// of one version for ever, which every host reads though it speaks that no more in other things.
const (
	methodProve = "gossip.prove"
	protoProof  = 2
)

const (
	nonceSize = 16
	// proofPatience is how long a proof is waited for: some tries to open a stream.
	proofPatience = 2 * time.Second
	proofAgain    = 100 * time.Millisecond // between two tries
)

// statement is what a host signs to prove that it is there: all of a call of methodProve, and
// the run, a random number that tells this run of the agent from its copies.
func statement(challenge, run []byte) []byte {
	return bytes.Join([][]byte{[]byte("grapevine is here\x00"), challenge, run}, nil)
}

// prover proves that this host is there, and asks others to.
type prover struct {
	*core
	roster   *roster
	caller   *caller
	run      uint64 // random: this run of the agent, of which a copy is another
	silences silences
}

// serve answers methodProve. Anybody may have it proved: nothing is done for it.
func (p *prover) serve(challenge []byte) ([]byte, error) {
	if len(challenge) != nonceSize+len(p.self) {
		return nil, errShort
	}
	if nodeID(challenge[nonceSize:]) != p.self {
		return nil, fmt.Errorf("this is host %s", p.self)
	}
	run := binary.BigEndian.AppendUint64(nil, p.run)
	return append(run, p.cfg.Sign(statement(challenge, run))...), nil
}

// prove asks once whether a host is at an address, and returns the run that is.
func (p *prover) prove(ctx context.Context, id nodeID, at netip.AddrPort) (run uint64, err error) {
	challenge := make([]byte, nonceSize, nonceSize+len(id))
	_, _ = rand.Read(challenge) // never fails
	challenge = append(challenge, id[:]...)
	to := &memberlist.Node{Name: id.String(), Addr: at.Addr().AsSlice(), Port: at.Port()}
	reply, err := p.caller.node(ctx, to, protoProof, methodProve, challenge)
	if err != nil {
		return 0, err
	}
	if len(reply) < 8 || !p.cfg.Signed(to.Name, statement(challenge, reply[:8]), reply[8:]) {
		return 0, errors.New("the answer is not signed by the host")
	}
	return binary.BigEndian.Uint64(reply), nil
}

// whoIs is prove, again and again for as long as is said: that memberlist hears meanwhile
// that the host is dead ends a call, and is no answer.
func (p *prover) whoIs(ctx context.Context, id nodeID, at netip.AddrPort, patience time.Duration) (run uint64, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		run, err := p.prove(ctx, id, at)
		if err == nil {
			return run, true
		}
		p.log.Debug("no proof", "host", id, "addr", at, "err", err)
		if !sleep(ctx, proofAgain) {
			return 0, false
		}
	}
}

// present is Gossip.Present.
func (p *prover) present(ctx context.Context, node string, at ...netip.AddrPort) bool {
	id, err := parseNode(node)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	at = append(slices.Clone(at), p.roster.lastAddr(node))
	slices.SortFunc(at, netip.AddrPort.Compare)
	at = slices.Compact(at)
	answers := make(chan bool, len(at))
	running := 0
	for _, a := range at {
		if a.IsValid() && p.work.spawn(func(context.Context) {
			_, ok := p.whoIs(ctx, id, a, proofPatience)
			answers <- ok
		}) {
			running++
		}
	}
	for range running {
		if <-answers {
			return true
		}
	}
	return false
}

// silenceMemory is for how long it counts that a host did not prove that it is there.
const silenceMemory = time.Minute

// silences remembers when hosts were asked in vain; the zero time: they are asked just now.
type silences struct {
	mu sync.Mutex
	of map[string]time.Time
}

// silent is Gossip.Silent.
func (p *prover) silent(node string, at ...netip.AddrPort) bool {
	s := &p.silences
	s.mu.Lock()
	defer s.mu.Unlock()
	since, known := s.of[node]
	if known && (since.IsZero() || time.Since(since) < silenceMemory) {
		return !since.IsZero()
	}
	if len(s.of) >= maxSilences {
		clear(s.of)
	}
	s.of[node] = time.Time{}
	if !p.work.spawn(func(ctx context.Context) {
		there := p.present(ctx, node, at...)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.of[node] = time.Now(); there || ctx.Err() != nil {
			delete(s.of, node)
		}
	}) {
		delete(s.of, node)
	}
	return false
}

// maxSilences bounds how many hosts are remembered.
const maxSilences = 1 << 12
