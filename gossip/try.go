package gossip

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	tryPatience = 2 * time.Second
	tryDial     = 300 * time.Millisecond // for an answer, before it is looked whether a stream can be opened
	tryPings    = 4                      // packets, each after the one before has not been answered
)

// Trial is what became of a call and of packets to another host. Both go to its one port.
type Trial struct {
	Call   error // it was not answered; the call and its answer are a stream each
	Dial   error // why: no stream to the host could be opened; nil: one could
	Packet error // of several none was answered
}

var errNoPacket = errors.New("no packet was answered")

// Try finds out in two seconds whether both streams and packets go to a host that is alive and
// come back. memberlist is content with either, and an agent needs both. Of a host of an older
// version it says that they do.
func (g *Gossip) Try(ctx context.Context, node string) Trial {
	ctx, cancel := context.WithTimeout(ctx, tryPatience)
	defer cancel()
	to, err := g.roster.find(node)
	if err != nil {
		return Trial{Call: err, Packet: err}
	}
	if !g.roster.speaksSince(node, protoEpochs) {
		return Trial{}
	}
	begin := func(f func() error) <-chan error {
		result := make(chan error, 1)
		if !g.work.spawn(func(context.Context) { result <- f() }) {
			result <- errClosed
		}
		return result
	}
	packet := begin(func() error { return g.tryPackets(ctx, to) })
	call := begin(func() error { return g.tryCall(ctx, to) })
	var t Trial
	select {
	case t.Call = <-call:
	case <-time.After(tryDial):
		dial := begin(func() error { return g.tryDial(to) })
		if t.Call = <-call; t.Call != nil {
			t.Dial = <-dial
		}
	}
	var failed *net.OpError
	if errors.As(t.Call, &failed) && failed.Op == "dial" {
		t.Dial = t.Call
	}
	t.Packet = <-packet
	return t
}

// tryCall has the host say that it is there: nothing is done for it, and anybody knows how.
func (g *Gossip) tryCall(ctx context.Context, to *memberlist.Node) error {
	id, err := parseNode(to.Name)
	if err != nil {
		return err
	}
	challenge := make([]byte, nonceSize, nonceSize+len(id))
	_, _ = rand.Read(challenge) // never fails
	_, err = g.callNode(ctx, to, protoProof, methodProve, append(challenge, id[:]...))
	var answer *RemoteError
	if errors.As(err, &answer) || errors.Is(err, errBusy) {
		return nil
	}
	return err
}

func (g *Gossip) tryDial(to *memberlist.Node) error {
	c, err := g.transport.DialTimeout(to.FullAddress().Addr, tryPatience-2*tryDial)
	if err != nil {
		return err
	}
	return c.Close()
}

func (g *Gossip) tryPackets(ctx context.Context, to *memberlist.Node) error {
	for range tryPings {
		if _, err := g.ml.Ping(to.Name, &net.UDPAddr{IP: to.Addr, Port: int(to.Port)}); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errNoPacket
}
