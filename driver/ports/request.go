// Package ports turns what a user asks for with `docker run -p` into bindings of the
// host's ports. It is pure: who holds a port, and rules for packets, are others' work.
package ports

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
)

// OptPortMap is the option in which Docker hands over -p.
const OptPortMap = "com.docker.network.portmap"

// maxRequests is more than anybody publishes and less than what would exhaust the
// agent's file descriptors.
const maxRequests = 16384

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
	return out, nil
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
