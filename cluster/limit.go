package cluster

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
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

// Delay is how much longer a packet is on its way, in microseconds; 0: no longer than without.
type Delay uint32

// What a delay may be: less is lost in what a packet takes anyway, and more is no network.
const (
	MinDelay = Delay(100)
	MaxDelay = Delay(10e6)
)

// ParseDelay reads a delay: 50ms, 1.5s, 500us. An error says what is wrong.
func ParseDelay(text string) (Delay, error) {
	d, err := time.ParseDuration(text)
	if us := d.Microseconds(); err == nil && us >= int64(MinDelay) && us <= int64(MaxDelay) {
		return Delay(us), nil
	}
	return 0, fmt.Errorf("%.40q is not a time between %s and %s, such as 50ms", text, MinDelay, MaxDelay)
}

// Duration is the delay as a program has it.
func (d Delay) Duration() time.Duration { return time.Duration(d) * time.Microsecond }

// String is the delay as ParseDelay reads it; "" for none.
func (d Delay) String() string {
	switch {
	case d == 0:
		return ""
	case d < 1000:
		return strconv.FormatUint(uint64(d), 10) + "us"
	}
	return d.Duration().String()
}

// Loss is how many of a million packets are lost.
type Loss uint32

// MaxLoss are all.
const MaxLoss Loss = 1e6

// ParseLoss reads a share of packets: 1%, 0.5%. An error says what is wrong.
func ParseLoss(text string) (Loss, error) {
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(number, 64)
	if share := math.Round(n * 1e4); percent && err == nil && share >= 1 && share <= float64(MaxLoss) {
		return Loss(share), nil
	}
	return 0, fmt.Errorf("%.40q is not a share of packets between 0.0001%% and 100%%, such as 1%%", text)
}

// Share is the loss between 0 and 1.
func (l Loss) Share() float64 { return float64(l) / float64(MaxLoss) }

// String is the share as ParseLoss reads it; "" for none.
func (l Loss) String() string {
	if l == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(l)/1e4, 'f', -1, 64) + "%"
}

// Limits are what a container may send and get, and what becomes of what it sends; 0: nothing is said.
type Limits struct {
	Egress  Rate `cbor:"15,keyasint,omitempty" json:",omitempty"`
	Ingress Rate `cbor:"16,keyasint,omitempty" json:",omitempty"`
	// Each packet that it sends is so much longer on its way, more or less by Jitter at random, and so many are lost.
	Delay  Delay `cbor:"22,keyasint,omitempty" json:",omitempty"`
	Jitter Delay `cbor:"23,keyasint,omitempty" json:",omitempty"`
	Loss   Loss  `cbor:"24,keyasint,omitempty" json:",omitempty"`
}

// Options of a network and of an endpoint that are its Limits.
const (
	OptEgress  = "egress"
	OptIngress = "ingress"
	OptDelay   = "delay"
	OptJitter  = "jitter"
	OptLoss    = "loss"
)

// LimitOptions are all of them.
func LimitOptions() []string { return []string{OptEgress, OptIngress, OptDelay, OptJitter, OptLoss} }

// Set reads one of LimitOptions. An error says what is wrong with the text.
func (l *Limits) Set(option, text string) (err error) {
	switch option {
	case OptEgress:
		l.Egress, err = ParseRate(text)
	case OptIngress:
		l.Ingress, err = ParseRate(text)
	case OptDelay:
		l.Delay, err = ParseDelay(text)
	case OptJitter:
		l.Jitter, err = ParseDelay(text)
	case OptLoss:
		l.Loss, err = ParseLoss(text)
	}
	return err
}

// Clear takes away what one of LimitOptions has set.
func (l *Limits) Clear(option string) {
	switch option {
	case OptEgress:
		l.Egress = 0
	case OptIngress:
		l.Ingress = 0
	case OptDelay:
		l.Delay = 0
	case OptJitter:
		l.Jitter = 0
	case OptLoss:
		l.Loss = 0
	}
}

// Or returns l, with each limit that l leaves open taken from others.
func (l Limits) Or(others Limits) Limits {
	return Limits{cmp.Or(l.Egress, others.Egress), cmp.Or(l.Ingress, others.Ingress), cmp.Or(l.Delay, others.Delay), cmp.Or(l.Jitter, others.Jitter), cmp.Or(l.Loss, others.Loss)}
}

// Lags reports whether what a container sends comes later, or not at all.
func (l Limits) Lags() bool { return l.Delay != 0 || l.Jitter != 0 || l.Loss != 0 }

// Limits are an endpoint's: its own, or else its network's.
func (s *Snapshot) Limits(e Endpoint) Limits {
	n, _ := Get[Network](s, e.Network)
	return e.Limits.Or(LimitsOf(s, n))
}

// LimitsOf are those of each container of a network: what was said of it while it was there, or else what it was made with.
func LimitsOf(s *Snapshot, n Network) (all Limits) {
	said, _ := Get[NetworkLimits](s, n.Name)
	for _, option := range LimitOptions() {
		text, given := said.Options[option]
		if !given || !said.Applies(n) {
			text, given = n.Options[option]
		}
		var one Limits
		if given && one.Set(option, text) == nil { // NoLimit is none
			all = all.Or(one)
		}
	}
	return all
}
