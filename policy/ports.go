package policy

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// PortsLabel is the label of a container that names its ports: web=8080/tcp, dns=53/udp.
const PortsLabel = "grapevine.ports"

// maxNamedPorts is how many ports a container can name.
const maxNamedPorts = 64

var portName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`) })

// protocols are those that policies name.
var protocols = map[string]uint8{"tcp": TCP, "udp": UDP, "sctp": SCTP}

// ParsePorts reads the label that names a container's ports. Names are lower case letters, digits
// and hyphens; the protocol is tcp if none is said.
func ParsePorts(label string) (map[string]NamedPort, error) {
	ports := map[string]NamedPort{}
	for part := range strings.SplitSeq(label, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, what, ok := strings.Cut(part, "=")
		number, proto, said := strings.Cut(what, "/")
		if !said {
			proto = "tcp"
		}
		n, err := strconv.ParseUint(number, 10, 16)
		p, known := protocols[strings.ToLower(proto)]
		if !ok || err != nil || n == 0 || !known {
			return nil, fmt.Errorf("label %s: %.80q is no named port; write NAME=PORT/tcp, /udp or /sctp, with commas between", PortsLabel, part)
		}
		if !portName().MatchString(name) {
			return nil, fmt.Errorf("label %s: %.80q is no name of a port; take up to 63 lower case letters, digits and hyphens", PortsLabel, name)
		}
		if _, twice := ports[name]; twice {
			return nil, fmt.Errorf("label %s: the port %q is there twice; name each once", PortsLabel, name)
		}
		if len(ports) == maxNamedPorts {
			return nil, fmt.Errorf("label %s: there are more than %d ports; name fewer", PortsLabel, maxNamedPorts)
		}
		ports[name] = NamedPort{p, uint16(n)}
	}
	return ports, nil
}
