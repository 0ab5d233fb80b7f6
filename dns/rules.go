package dns

import "strconv"

// Rule is a rule for iptables and, in the same words, ip6tables.
type Rule struct {
	Table, Chain string
	Args         []string // match and target, without the chain
}

// Rules are the rules by which containers' questions reach a Server with this
// device and port: whatever comes in at the gateway for port 53, of whichever
// server, is led to it, and let in where the host lets in only what it knows.
//
// Nothing else is let in by them: the Server's sockets are bound to the device, and
// what the host itself sends does not come in there, so no question goes in a circle.
func Rules(device string, port uint16) (rules []Rule) {
	to := strconv.Itoa(int(port))
	for _, proto := range []string{"udp", "tcp"} {
		rules = append(rules,
			Rule{"nat", "PREROUTING", []string{"-i", device, "-p", proto, "--dport", "53", "-j", "REDIRECT", "--to-ports", to}},
			Rule{"filter", "INPUT", []string{"-i", device, "-p", proto, "--dport", to, "-j", "ACCEPT"}})
	}
	return rules
}
