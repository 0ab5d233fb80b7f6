package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"
)

// Traffic is who talks to whom.
type Traffic struct {
	Hosts       []TrafficHost `json:"hosts"` // that counted
	Connections []Connection  `json:"connections"`
}

// TrafficHost is how a host counted.
type TrafficHost struct {
	Name  string    `json:"name"`
	Since time.Time `json:"since,omitzero"`
	// At is when it looked at what it had counted, by its own clock: what passed between two answers passed between these.
	At time.Time `json:"at,omitzero"`
	// Lost are packets of connections that there was no room for.
	Lost uint64 `json:"lost"`
	// Left are directions of connections that were left out of its answer: the oldest.
	Left int `json:"left,omitempty"`
	// Error says why it counts nothing, or could not be asked.
	Error string `json:"error,omitempty"`
}

// Connection is one of TCP or SCTP, or what two ports or identifiers said to each other by other protocols.
type Connection struct {
	First time.Time `json:"first"`
	// Again is when the last one of these ports began, if they were used again for another one since First.
	Again time.Time  `json:"again,omitzero"`
	Last  time.Time  `json:"last"`
	From  TrafficEnd `json:"from"`
	To    TrafficEnd `json:"to"`
	Proto string     `json:"proto"` // tcp, udp, sctp, icmp or a number
	// State is opening, open, closed, reset, refused or unanswered; of what has no connections sent, answered or unanswered.
	State   string `json:"state"`
	Packets uint64 `json:"packets"` // from From, as its host's network stack sent them
	Bytes   uint64 `json:"bytes"`
	// BackPackets and BackBytes are from To. On one host they are counted where To is on it, or outside.
	BackPackets uint64 `json:"backPackets"`
	BackBytes   uint64 `json:"backBytes"`
}

// Begun is when it began; if its ports were used again, when the last one did.
func (c Connection) Begun() time.Time {
	if c.Again.IsZero() {
		return c.First
	}
	return c.Again
}

// TrafficEnd is an end of a connection: a container, a host, or an address outside.
type TrafficEnd struct {
	Name    string     `json:"name,omitempty"`
	Network string     `json:"network,omitempty"`
	Host    string     `json:"host,omitempty"`
	Addr    netip.Addr `json:"addr"`
	Port    uint16     `json:"port,omitempty"`
}

// TrafficOf says of whom. What is empty is no condition.
type TrafficOf struct {
	// All hosts are asked, as far as they can have counted what is wanted.
	All bool
	// Ends are two names at most, of containers, or addresses: the connection has all of them.
	Ends []string
	// Network is that of one end.
	Network string
	// Port is that of one end.
	Port uint16
}

// Has reports whether a connection between the two ends is wanted.
func (o TrafficOf) Has(a, b TrafficEnd) bool {
	switch e := o.Ends; {
	case len(e) == 1 && !a.Is(e[0]) && !b.Is(e[0]):
	case len(e) >= 2 && !(a.Is(e[0]) && b.Is(e[1])) && !(a.Is(e[1]) && b.Is(e[0])):
	case o.Network != "" && a.Network != o.Network && b.Network != o.Network:
	case o.Port != 0 && a.Port != o.Port && b.Port != o.Port:
	default:
		return true
	}
	return false
}

// Is reports whether an end is called so: by its name, NETWORK/NAME, or its address.
func (e TrafficEnd) Is(name string) bool {
	return e.Name == name || e.Addr.String() == name || e.Network+"/"+e.Name == name
}

// Traffic says who talks to whom on the agent's host, or on all. Where nothing is counted yet, it begins to be.
func (c *Client) Traffic(ctx context.Context, of TrafficOf) (Traffic, error) {
	q := url.Values{"all": {strconv.FormatBool(of.All)}, "end": of.Ends}
	if of.Network != "" {
		q.Set("network", of.Network)
	}
	if of.Port != 0 {
		q.Set("port", strconv.Itoa(int(of.Port)))
	}
	return call[Traffic](ctx, c, http.MethodGet, "traffic?"+q.Encode(), nil)
}

var _ = resource(Handlers.addTraffic, func(h Handlers, to *Handlers) { to.Traffic = h.Traffic })

func (h Handlers) addTraffic(mux *routes) {
	mux.handle("GET /v1/traffic", func(w http.ResponseWriter, r *http.Request) {
		if h.Traffic == nil {
			mux.none(w, r)
			return
		}
		q := r.URL.Query()
		of := TrafficOf{All: q.Get("all") == "true", Ends: q["end"], Network: q.Get("network")}
		if n, err := strconv.ParseUint(q.Get("port"), 10, 16); err == nil {
			of.Port = uint16(n)
		}
		if len(of.Ends) > 2 {
			reply(w, nil, Errorf(http.StatusBadRequest, "a connection has two ends, not %d", len(of.Ends)))
			return
		}
		value, err := h.Traffic(r.Context(), of)
		if err != nil {
			reply(w, nil, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = value.write(w) // an error here is a caller that went away
	})
}

// write says it one connection after the other: all that a host has counted is megabytes, which the agent would hold at once.
func (t Traffic) write(w io.Writer) error {
	hosts, err := json.Marshal(t.Hosts)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(w, 32<<10)
	_, _ = fmt.Fprintf(b, `{"hosts":%s,"connections":[`, hosts)
	each := json.NewEncoder(b)
	for i, c := range t.Connections {
		if i > 0 {
			_ = b.WriteByte(',')
		}
		if err := each.Encode(c); err != nil {
			return err
		}
	}
	_, _ = b.WriteString("]}\n")
	return b.Flush()
}
