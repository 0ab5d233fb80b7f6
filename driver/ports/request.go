// Package ports turns what a user asks for with `docker run -p` into bindings of the
// host's ports. It is pure: who holds a port, and rules for packets, are others' work.
package ports

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

// OptPortMap is the option in which Docker hands over -p.
const OptPortMap = "com.docker.network.portmap"

// maxRequests is all ports of all protocols.
const maxRequests = 3 * 65535

// Proto is a transport protocol by its IP protocol number (IANA).
type Proto uint8

// The protocols that can be published.
const (
	TCP  Proto = 6
	UDP  Proto = 17
	SCTP Proto = 132
)

// String returns the name by which Docker and iptables know the protocol.
func (p Proto) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return "protocol " + strconv.Itoa(int(p))
}

// Request is one -p: a port of the container, and which of the host's are to lead there.
type Request struct {
	Proto Proto
	Port  uint16 // the container's
	// Host is the host's address; invalid: all of them, of each family that the
	// container has an address of.
	Host netip.Addr
	// First and Last are the host's ports to choose from; 0 and 0: any.
	First, Last uint16
	// More ports of the container behind Port lead to as many of the host behind First, which
	// then is Last: no choice.
	More uint16
}

// String is the request as `docker ps` would show it.
func (r Request) String() string {
	at := "any port"
	switch r.First {
	case 0:
	case r.Last:
		at = "port " + strconv.Itoa(int(r.First))
	default:
		at = fmt.Sprintf("a port of %d-%d", r.First, r.Last)
	}
	if r.Host.IsValid() && !r.Host.IsUnspecified() {
		at += " of " + r.Host.String()
	}
	if r.More > 0 {
		return fmt.Sprintf("ports %d-%d for %d-%d/%s", r.First, r.First+r.More, r.Port, r.Port+r.More, r.Proto)
	}
	return fmt.Sprintf("%s for %d/%s", at, r.Port, r.Proto)
}

// portBinding is libnetwork's types.PortBinding in JSON.
type portBinding struct {
	Proto       Proto
	Port        uint16
	HostIP      string
	HostPort    uint16
	HostPortEnd uint16
}

// Parse reads the requests among the options of a call, none if there are none.
func Parse(options map[string]any) ([]Request, error) {
	raw, ok := options[OptPortMap]
	if !ok || raw == nil {
		return nil, nil
	}
	text, err := json.Marshal(raw)
	if err != nil {
		return nil, fmt.Errorf("read the ports to publish: %w", err)
	}
	var list []portBinding
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read the ports to publish (%s): %w", OptPortMap, err)
	}
	if len(list) > maxRequests {
		return nil, fmt.Errorf("%d ports are to be published; at most %d can be", len(list), maxRequests)
	}
	var out []Request
	for _, b := range list {
		r, err := b.request()
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return together(out), nil
}

// together makes one request of those that ask for neighbours without leaving a choice: of
// -p 30000-39999:30000-39999 Docker makes ten thousand, in any order.
func together(reqs []Request) (out []Request) {
	slices.SortStableFunc(reqs, func(a, b Request) int {
		return cmp.Or(cmp.Compare(a.Proto, b.Proto), a.Host.Compare(b.Host), cmp.Compare(a.Port, b.Port), cmp.Compare(a.First, b.First))
	})
	open := map[Request]int{} // what would continue a request of out, and which
	for _, r := range reqs {
		if r.First == 0 || r.First != r.Last {
			out = append(out, r)
			continue
		}
		i, ok := open[r]
		if !ok {
			i, out = len(out), append(out, r)
		} else {
			out[i].More++
			delete(open, r)
		}
		if r.Port < 65535 && r.First < 65535 {
			next := r
			next.Port, next.First, next.Last = r.Port+1, r.First+1, r.Last+1
			open[next] = i
		}
	}
	return out
}

func (b portBinding) request() (Request, error) {
	r := Request{Proto: b.Proto, Port: b.Port, First: b.HostPort, Last: max(b.HostPort, b.HostPortEnd)}
	switch {
	case b.Proto != TCP && b.Proto != UDP && b.Proto != SCTP:
		return r, fmt.Errorf("%s of port %d cannot be published; tcp, udp and sctp can", b.Proto, b.Port)
	case b.Port == 0:
		return r, fmt.Errorf("port 0/%s of the container cannot be published; name one", b.Proto)
	case b.HostPort == 0 && b.HostPortEnd != 0, b.HostPortEnd != 0 && b.HostPortEnd < b.HostPort:
		return r, fmt.Errorf("%d-%d is no range of the host's ports for %d/%s", b.HostPort, b.HostPortEnd, b.Port, b.Proto)
	case b.HostIP == "":
		return r, nil
	}
	host, err := netip.ParseAddr(b.HostIP)
	if err != nil || host.Zone() != "" {
		return r, fmt.Errorf("%.60q, for port %d/%s, is no address of a host", b.HostIP, b.Port, b.Proto)
	}
	r.Host = host.Unmap()
	return r, nil
}
