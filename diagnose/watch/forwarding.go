package watch

import (
	"bytes"
	"fmt"
	"os"

	"github.com/grapevine-net/grapevine/api"
)

// ForwardingOff says that packets which come in at the underlay's interface are not passed
// on: the administrator's switch, which the agent leaves alone, and which stops published
// ports and the answers to what containers send out (IPv4; IPv6 has no such switch of one
// interface).
func ForwardingOff(dev string) []api.Problem {
	text, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + dev + "/forwarding")
	if err != nil || string(bytes.TrimSpace(text)) != "0" {
		return nil
	}
	return []api.Problem{{
		Code: api.ForwardingOff,
		What: fmt.Sprintf("this host passes on nothing that comes in at %s (net.ipv4.conf.%s.forwarding is 0): ports that containers publish are not reached there, and containers get no answers from outside", dev, dev),
		Do:   fmt.Sprintf("sysctl -w net.ipv4.conf.%s.forwarding=1, and see what of /etc/sysctl.d turns it off", dev),
	}}
}
