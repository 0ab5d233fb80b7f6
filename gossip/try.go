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
	tryPatience = 1800 * time.Millisecond
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

// trier finds out what passes to a host.
type trier struct {
	*core
	roster    *roster
	post      *post
	caller    *caller
	transport *transport
}

// try is Gossip.Try.
func (r *trier) try(ctx context.Context, node string, packets bool) Trial {
	if to, err := r.roster.find(node); packets && err == nil && (!r.roster.speaksSince(node, protoEpochs) || r.ping(to) == nil) {
		return Trial{}
	}
	ctx, cancel := context.WithTimeout(ctx, tryPatience)
	defer cancel()
	to, err := r.roster.find(node)
	if err != nil {
		return Trial{Call: err, Packet: err}
	}
	if !r.roster.speaksSince(node, protoEpochs) {
		return Trial{}
	}
	begin := func(f func() error) <-chan error {
		result := make(chan error, 1)
		if !r.work.spawn(func(context.Context) { result <- f() }) {
			result <- errClosed
		}
		return result
	}
	packet := begin(func() error { return r.packets(ctx, to) })
	call := begin(func() error { return r.call(ctx, to) })
	var t Trial
	select {
	case t.Call = <-call:
	case <-time.After(tryDial):
		dial := begin(func() error { return r.dial(to) })
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

// call has the host say that it is there: nothing is done for it, and anybody knows how.
func (r *trier) call(ctx context.Context, to *memberlist.Node) error {
	id, err := parseNode(to.Name)
	if err != nil {
		return err
	}
	challenge := make([]byte, nonceSize, nonceSize+len(id))
	_, _ = rand.Read(challenge) // never fails
	_, err = r.caller.node(ctx, to, protoProof, methodProve, append(challenge, id[:]...))
	var answer *RemoteError
	if errors.As(err, &answer) || errors.Is(err, errBusy) {
		return nil
	}
	return err
}

func (r *trier) dial(to *memberlist.Node) error {
	c, err := r.transport.DialTimeout(to.FullAddress().Addr, tryPatience-2*tryDial)
	if err != nil {
		return err
	}
	return c.Close()
}

func (r *trier) packets(ctx context.Context, to *memberlist.Node) error {
	for range tryPings {
		if r.ping(to) == nil {
			return nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errNoPacket
}

// ping waits for an answer for half of what is between two of memberlist's probes.
func (r *trier) ping(to *memberlist.Node) error {
	_, err := r.post.ml.Ping(to.Name, &net.UDPAddr{IP: to.Addr, Port: int(to.Port)})
	return err
}
