package gossip

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// presence is what this host says of itself: which cluster it is in, and that it leaves.
type presence struct {
	*core
	epochs  *epochs
	adopted func() // called when the cluster is known
	ml      *memberlist.Memberlist

	mu      sync.Mutex // guards the next block; no call of memberlist under it
	cluster string
	told    []byte // our meta as memberlist has it
	leaving bool

	known    chan struct{} // closed when cluster is set
	announce chan struct{} // room for one: our meta has changed

	node nodeLock
	down bool // guarded by node
}

func newPresence(c *core, e *epochs, adopted func()) *presence {
	return &presence{
		core: c, epochs: e, adopted: adopted,
		known: make(chan struct{}), announce: make(chan struct{}, 1), node: make(nodeLock, 1),
	}
}

// adopt takes a cluster's ID if this host has none, and returns the ID it has.
func (s *presence) adopt(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cluster == "" && id != "" {
		s.cluster = id
		close(s.known)
		poke(s.announce)
		s.adopted()
	}
	return s.cluster
}

// clusterID is the ID of the cluster this host is in, "" if none yet.
func (s *presence) clusterID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster
}

// seed makes this host the first of a new cluster.
func (s *presence) seed(id string) error {
	if id == "" || len(id) > maxLabel {
		return fmt.Errorf("set cluster ID %.80q: want 1 to %d bytes", id, maxLabel)
	}
	if have := s.adopt(id); have != id {
		return fmt.Errorf("set cluster ID %s: this host is in cluster %s already", id, have)
	}
	return nil
}

// await waits until the host is in a cluster.
func (s *presence) await(ctx context.Context) (string, error) {
	select {
	case <-s.known:
		return s.clusterID(), nil
	case <-ctx.Done():
		return "", fmt.Errorf("wait for a cluster: %w", ctx.Err())
	}
}

func (s *presence) leaves() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaving
}

// heard takes our meta as memberlist has it now.
func (s *presence) heard(meta []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = slices.Clone(meta)
}

// nodeMeta is what this host tells of itself.
func (s *presence) nodeMeta() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meta()
}

// meta is nodeMeta with mu held.
func (s *presence) meta() []byte {
	return nodeMeta{leaving: s.leaving, speaks: s.cfg.speaks, node: s.self, cluster: s.cluster, name: s.cfg.Name, epoch: s.epochs.current()}.encode()
}

// publish tells the peers our meta, and waits for limit at most until it has been sent.
// memberlist says nothing, but for that wait, where it refutes what another host says of us
// at the same moment; then it is told once more. The caller holds node.
func (s *presence) publish(limit time.Duration) {
	for range 2 {
		if err := s.ml.UpdateNode(limit); err != nil {
			s.log.Debug("announce", "err", err)
		}
		s.mu.Lock()
		told := bytes.Equal(s.told, s.meta())
		s.mu.Unlock()
		if told {
			return
		}
	}
	poke(s.announce)
}

// announceLoop tells the peers when our meta has changed.
func (s *presence) announceLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.announce:
		}
		s.node.lock()
		if !s.down && !s.leaves() { // memberlist may have forgotten a node that left
			s.publish(500 * time.Millisecond)
		}
		s.node.unlock()
	}
}

// leave is Gossip.Leave.
func (s *presence) leave(ctx context.Context) error {
	s.mu.Lock()
	again := s.leaving
	s.leaving = true
	s.mu.Unlock()
	if again {
		return nil
	}
	limit := 5 * time.Second
	if t, ok := ctx.Deadline(); ok {
		limit = max(time.Until(t), time.Millisecond)
	}
	s.node.lock()
	defer s.node.unlock()
	if s.down {
		return nil
	}
	// First the flag that tells those of version 2 a leave from a death, then the leave itself.
	s.publish(limit / 4)
	if err := s.ml.Leave(limit / 2); err != nil {
		return fmt.Errorf("gossip: leave: %w", err)
	}
	return nil
}

// depart is Gossip.Depart.
func (s *presence) depart(ctx context.Context) error {
	s.node.lock()
	defer s.node.unlock()
	if s.down || ctx.Err() != nil {
		return nil
	}
	if err := s.ml.Leave(time.Second); err != nil {
		return fmt.Errorf("gossip: depart: %w", err)
	}
	return nil
}

// end has memberlist stop.
func (s *presence) end() error {
	s.node.lock()
	defer s.node.unlock()
	s.down = true
	return s.ml.Shutdown()
}
