package view

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/k8s"
	"github.com/grapevine-net/grapevine/policy/learn"
	"github.com/grapevine-net/grapevine/policy/worlds"
)

// Logs reports whether a policy may want verdicts logged, or is only tried. It reads none of them, since it is asked at each change.
func Logs(s *cluster.Snapshot) bool {
	for _, p := range cluster.PoliciesOf(s).InForce() {
		if strings.Contains(p.Text, k8s.LogAnnotation) {
			return true
		}
	}
	return tries(s)
}

// Logging remembers what Logs says of the last snapshot that it was asked about.
type Logging struct {
	mu     sync.Mutex
	of     *cluster.Snapshot
	wanted bool
}

// Wanted is Logs.
func (l *Logging) Wanted(s *cluster.Snapshot) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s != l.of {
		l.of, l.wanted = s, Logs(s)
	}
	return l.wanted
}

// question is what is asked of policies about a connection that was seen; it is not, if another host is to ask, or if policies
// do not decide about it.
func question(s *cluster.Snapshot, self cluster.NodeID, host func(netip.Addr) bool, c api.Connection) (proto uint8, port uint16, asked bool) {
	proto, port = protocols[c.Proto], c.To.Port
	if c.Proto == "icmp" {
		const echo, echo6 = 8, 128
		if port = echo; c.To.Addr.Is6() {
			proto, port = policy.ICMPv6, echo6
		}
	}
	elsewhere := c.From.Host != "" && c.From.Host != s.HostName(self) // its host logs it
	return proto, port, proto != 0 && !elsewhere && !(c.From.Host == "" && host(c.From.Addr)) && !(c.To.Host == "" && port == learn.ResolverPort && host(c.To.Addr))
}

// Logged judges connections that containers of the host self began, or that came to them from outside, and returns those
// that a policy with a say wants logged. told is what containers here were told by name; host says of an address that
// hosts speak to containers by it.
func Logged(s *cluster.Snapshot, self cluster.NodeID, told []policy.Answer, host func(netip.Addr) bool, seen []api.Connection) (list []api.LoggedConnection) {
	w := worlds.Of(s, self)
	w.Answers = told
	wants := map[policy.Key]policy.Log{}
	for _, p := range w.Policies {
		if p.Log != policy.LogNothing {
			wants[p.Key] = p.Log
		}
	}
	for _, c := range seen {
		proto, port, asked := question(s, self, host, c)
		if !asked {
			continue
		}
		v := w.Verdict(policy.Peer{Addr: c.From.Addr}, policy.Peer{Addr: c.To.Addr}, proto, port)
		one := api.LoggedConnection{Time: c.First, From: c.From, To: c.To, Proto: c.Proto, Allowed: v.Allowed}
		logged := false
		for _, d := range []policy.Decision{v.Egress, v.Ingress} {
			if !v.Allowed && d.Allowed {
				continue // what that end lets through is not what decides
			}
			one.Rules = append(one.Rules, rules(d.Rules)...)
			one.Unknown = append(one.Unknown, d.Unknown...)
			logged = logged || slices.ContainsFunc(d.Rules, func(r policy.Ref) bool {
				return wants[r.Policy] == policy.LogAll || wants[r.Policy] == policy.LogDenied && !v.Allowed
			})
		}
		if logged {
			list = append(list, one)
		}
	}
	return list
}
