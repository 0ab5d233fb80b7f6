package edit

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/k8s"
	"github.com/grapevine-net/grapevine/policy/learn"
	"github.com/grapevine-net/grapevine/policy/worlds"
)

// Learn makes policies of what was seen on a network: they let just that pass. It writes nothing.
func (d Desk) Learn(ctx context.Context, network string) (api.Learned, error) {
	snap := d.Replica.Snapshot()
	if n, there := cluster.Get[cluster.Network](snap, network); !there || n.Provisional() {
		return api.Learned{}, api.Errorf(http.StatusNotFound, "there is no network %.80s: see `grapevine networks`", network)
	}
	t, err := d.Traffic(ctx, true)
	if err != nil {
		return api.Learned{}, err
	}
	learned := learn.Of(learn.Seen{Network: network, Endpoints: worlds.Endpoints(snap), Connections: answered(t.Connections), Host: hosts(snap)})
	out := api.Learned{Policies: len(learned.Policies), Seen: learned.Seen}
	out.Notes = append(counted(t), learned.Notes...)
	out.Text = learn.Comment(append([]string{fmt.Sprintf("Of %s seen on network %s. Read it, and `grapevine policy try` it, before you apply it.",
		words.Plural(learned.Seen, "connection"), network)}, out.Notes...))
	if len(learned.Policies) > 0 {
		out.Text += string(k8s.FormatAll(learned.Policies))
	}
	return out, nil
}

// counted says since when which host counts, and what is not in it.
func counted(t api.Traffic) (notes []string) {
	for _, h := range t.Hosts {
		switch {
		case h.Error != "":
			notes = append(notes, fmt.Sprintf("what containers of host %s did is not in it: %s", h.Name, h.Error))
		case h.Left > 0 || h.Lost > 0:
			notes = append(notes, fmt.Sprintf("some of what containers of host %s did is not in it: it was too much to keep, or to tell", h.Name))
		}
		if h.Error == "" && !h.Since.IsZero() {
			notes = append(notes, fmt.Sprintf("host %s counts since %s", h.Name, h.Since.Format("2006-01-02 15:04:05 MST")))
		}
	}
	return notes
}

// seen is what the counting of packets knows, as package learn takes it.
func seen(list []api.Connection) (out []learn.Connection) {
	protocols := map[string]uint8{"tcp": policy.TCP, "udp": policy.UDP, "sctp": policy.SCTP, "icmp": policy.ICMP}
	for _, c := range list {
		one := learn.Connection{From: learnEnd(c.From), To: learnEnd(c.To), Proto: protocols[c.Proto], Port: c.To.Port}
		switch c.State {
		case "refused", "unanswered":
			one.Failed = c.State
		case "opening":
			one.Failed = "not answered yet"
		case "open":
			one.Open = true
		}
		out = append(out, one)
	}
	return out
}

// answered is seen, of which nothing came where no answer was counted, however the caller went on: who is denied may send what
// he would if he were not.
func answered(list []api.Connection) (out []learn.Connection) {
	out = seen(list)
	for i, c := range list {
		if c.BackPackets == 0 && out[i].Failed == "" {
			out[i].Failed = "not answered, as far as was counted"
		}
	}
	return out
}

func learnEnd(e api.TrafficEnd) learn.End {
	return learn.End{Addr: e.Addr, Container: e.Host != "", Name: e.Name}
}

// hosts says of an address whether hosts speak to containers by it: a gateway's.
func hosts(snap *cluster.Snapshot) func(netip.Addr) bool {
	gateways := map[netip.Addr]bool{}
	for s := range cluster.All[cluster.Subnet](snap) {
		gateways[s.Gateway] = s.Gateway.IsValid()
	}
	return func(a netip.Addr) bool { return gateways[a] }
}
