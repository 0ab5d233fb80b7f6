package dns

import "fmt"

// Rule is a rule for iptables or ip6tables.
type Rule struct {
	V6           bool
	Table, Chain string // Chain is a built-in one
	Text         string // match and target, as `iptables -S` prints them
}

// Rules are the rules by which containers' questions reach a Server with this
// device and port. They let in what comes in at the gateway, also where the host lets in
// only what it knows. With redirect they lead to the Server all that is meant for port 53,
// of whichever server, but for what the Server itself asks in containers' stead. (A Server
// with Config.Redirect does that part itself.)
//
// Nothing else is let in by them: the Server's sockets are bound to the device, and
// what the host itself sends does not come in there, so no question goes in a circle.
func Rules(device string, port uint16, redirect bool) (rules []Rule) {
	for _, v6 := range []bool{false, true} {
		own := fmt.Sprintf("-m ttl ! --ttl-eq %d", ownTTL)
		if v6 {
			own = fmt.Sprintf("-m hl ! --hl-eq %d", ownTTL)
		}
		for _, proto := range []string{"udp", "tcp"} {
			if redirect {
				rules = append(rules, Rule{v6, "nat", "PREROUTING", fmt.Sprintf("-i %s -p %s -m %s --dport 53 %s -j REDIRECT --to-ports %d", device, proto, proto, own, port)})
			}
			rules = append(rules, Rule{v6, "filter", "INPUT", fmt.Sprintf("-i %s -p %s -m %s --dport %d -j ACCEPT", device, proto, proto, port)})
		}
	}
	return rules
}
