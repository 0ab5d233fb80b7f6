package cluster

import (
	"fmt"
	"strconv"
	"strings"
)

// Rate is a bandwidth in bits per second of frames, their headers counted; 0: no limit.
type Rate uint64

// What a limit may be: less does not carry a large packet in a second, more than the largest is none.
const (
	MinRate Rate = 64e3
	MaxRate Rate = 100e9
)

// rateUnits are tc(8)'s names for powers of thousand.
var rateUnits = []struct {
	name string
	unit Rate
}{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}

// ParseRate reads a rate as tc(8) writes it: 10mbit, 500kbit, 1.5gbit. An error says what is wrong.
func ParseRate(text string) (Rate, error) {
	for _, u := range rateUnits {
		number, ok := strings.CutSuffix(strings.ToLower(text), u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(number, 64)
		if r := n * float64(u.unit); err == nil && r >= float64(MinRate) && r <= float64(MaxRate) {
			return Rate(r), nil
		}
		break
	}
	return 0, fmt.Errorf("%.40q is not a rate between %s and %s, such as 10mbit", text, MinRate, MaxRate)
}

// String is the rate as ParseRate reads it; "" for no limit.
func (r Rate) String() string {
	if r == 0 {
		return ""
	}
	for _, u := range rateUnits {
		if r%u.unit == 0 {
			return strconv.FormatUint(uint64(r/u.unit), 10) + u.name
		}
	}
	return ""
}

// Options of a network and of an endpoint that limit what a container sends and gets.
const (
	OptEgress  = "egress"
	OptIngress = "ingress"
)

// Limits says what an endpoint may send and get: by its own limits, or else by its network's.
func (s *Snapshot) Limits(e Endpoint) (egress, ingress Rate) {
	egress, ingress = e.Egress, e.Ingress
	n, _ := Get[Network](s, e.Network)
	for option, limit := range map[string]*Rate{OptEgress: &egress, OptIngress: &ingress} {
		if r, err := ParseRate(n.Options[option]); *limit == 0 && err == nil {
			*limit = r
		}
	}
	return egress, ingress
}
