package gossip

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/hashicorp/memberlist"
)

// post is how this host writes to others: through memberlist, in the version that they read.
type post struct {
	*core
	presence  *presence
	roster    *roster
	door      *door                  // has the keys
	ml        *memberlist.Memberlist // there when this host listens, as is transport
	transport *transport
}

// writes is the version for members.
func (p *post) writes() uint8 { return p.roster.spoken.writes() }

// seal makes an envelope of this host, for members.
func (p *post) seal(k kind, body []byte) []byte { return p.sealAs(p.writes(), k, body) }

func (p *post) sealAs(version uint8, k kind, body []byte) []byte {
	return envelope{version, k, p.presence.clusterID(), p.self, body}.encode()
}

// packet sends what may be lost.
func (p *post) packet(to *memberlist.Node, b []byte) error { return p.ml.SendBestEffort(to, b) }

// same sends the same to several hosts, which may be lost: memberlist would seal it for each of them, with a cipher of its own.
func (p *post) same(to []*memberlist.Node, b []byte) {
	sealed := p.door.opener.seal(p.door.keyring.keys.GetPrimaryKey(), append([]byte{userPacket}, b...))
	for _, n := range to {
		if _, err := p.transport.WriteToAddress(sealed, n.FullAddress()); err != nil {
			p.log.Debug("send", "host", n.Name, "err", err)
		}
	}
}

// sendTries is how often a stream is opened that nobody answers.
const sendTries = 3

// sendReliable is memberlist's SendReliable, and tries again where no stream came about:
// the packets that open one may be lost, and what then is never said its reader would wait
// for as long as for a slow one. A message whose stream was not whole has not been taken.
func (p *post) sendReliable(ctx context.Context, to *memberlist.Node, b []byte) (err error) {
	for range sendTries {
		var late net.Error
		if err = p.ml.SendReliable(to, b); err == nil || ctx.Err() != nil || !errors.As(err, &late) || !late.Timeout() {
			return err
		}
	}
	return err
}

// exchange tells a host of all members, and is told of those that it knows.
func (p *post) exchange(at netip.AddrPort) error {
	_, err := p.ml.Join([]string{at.String()})
	return err
}
