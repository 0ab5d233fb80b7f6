package view

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/answers"
	"github.com/grapevine-net/grapevine/policy/worlds"
	"github.com/grapevine-net/grapevine/sshkey"
)

// Policies lists the policies by network and name, those of the cluster last. self is the host that is asked.
func Policies(s *cluster.Snapshot, self cluster.NodeID) api.Policies {
	w := worlds.Of(s, self)
	out := api.Policies{Policies: []api.Policy{}}
	unread := map[cluster.Key]error{}
	for _, u := range w.Unread {
		unread[u.Policy.Key()] = u.Err
	}
	read := map[cluster.Key]policy.Policy{}
	for _, p := range w.Policies[:len(w.Records)] {
		read[worlds.KeyOf(p.Key)] = p
	}
	signed := signatures(s)
	for _, rec := range w.Records {
		p, _ := rec.Body.(cluster.Policy)
		one := api.Policy{Kind: kindOf(p), Network: p.Network, Name: worlds.NameOf(p), Text: p.Text, Author: p.Author, Version: rec.Version.Counter, Mode: api.ModeEnforce}
		if by := signed[rec.Key]; by != nil {
			one.Signer, one.Serial = sshkey.Fingerprint(sshkey.Key(by.Signer)), by.Serial
			one.Notes = append(one.Notes, fmt.Sprintf("signed by %s, serial %d", one.Signer, one.Serial))
		}
		subject := read[rec.Key].Subject
		if one.Kind == policy.EgressNetworkPolicy.String() { // of which there are two, by labels
			subject = policy.Set{Network: p.Network}
		}
		certain, possible := w.Selected(subject)
		one.Selects, one.MaySelect = len(certain), len(possible)
		if err := unread[rec.Key]; err != nil {
			one.Notes = append(one.Notes, fmt.Sprintf("this host's agent is too old for it, and denies what it does not understand: %v", err))
		}
		if _, there := cluster.Get[cluster.Network](s, p.Network); !there && p.Scope == cluster.ScopeNetwork {
			one.Notes = append(one.Notes, "there is no network "+p.Network+": it selects nothing")
		}
		out.Policies = append(out.Policies, one)
	}
	out.Policies = append(out.Policies, tryPolicies(s, self)...)
	out.Policies = append(out.Policies, ignored(s)...)
	slices.SortFunc(out.Policies, func(a, b api.Policy) int {
		return cmp.Or(strings.Compare(b.Kind, a.Kind), strings.Compare(a.Network, b.Network), strings.Compare(a.Name, b.Name), strings.Compare(a.Mode, b.Mode))
	})
	for _, n := range Unenforced(s, w.Level()) {
		out.Notes = append(out.Notes, "host "+n.Name+" does not enforce policies")
	}
	return out
}

// signatures are what operators signed that is in force here, by the key that the policy would have without a signature.
func signatures(s *cluster.Snapshot) map[cluster.Key]*cluster.SignedPolicy {
	by := map[cluster.Key]*cluster.SignedPolicy{}
	for _, one := range cluster.PoliciesOf(s).All() {
		if one.Signed != nil && one.Force == cluster.InForce {
			by[one.Policy.Key()] = one.Signed
		}
	}
	return by
}

// ignored are the policies that this host does not enforce, with why.
func ignored(s *cluster.Snapshot) (list []api.Policy) {
	for _, st := range cluster.PoliciesOf(s).All() {
		p := st.Policy
		if st.Force == cluster.InForce || p.Text == "" {
			continue
		}
		one := api.Policy{Kind: kindOf(p), Network: p.Network, Name: worlds.NameOf(p), Text: p.Text, Author: p.Author, Version: st.Record.Version.Counter, Mode: api.ModeIgnored}
		if st.Signed != nil {
			one.Signer, one.Serial = sshkey.Fingerprint(sshkey.Key(st.Signed.Signer)), st.Signed.Serial
		}
		switch st.Force {
		case cluster.Unsigned:
			one.Notes = []string{"not enforced here: no key of GRAPEVINE_POLICY_KEYS has signed it"}
		case cluster.ForeignKey:
			one.Notes = []string{fmt.Sprintf("not enforced here: signed by %s, a key that this host does not go by", one.Signer)}
		case cluster.Replaced:
			one.Notes = []string{fmt.Sprintf("not enforced here: signed by %s, serial %d, and later by another key", one.Signer, one.Serial)}
		case cluster.Covered:
			one.Notes = []string{"not enforced here: a signed one of this name is in force"}
		}
		list = append(list, one)
	}
	return list
}

// PolicyName is a policy as commands name it.
func PolicyName(p cluster.Policy) string {
	return api.Policy{Network: p.Network, Name: worlds.NameOf(p)}.String()
}

// PolicyNames are all policies as commands name them, each once.
func PolicyNames(s *cluster.Snapshot) (names []string) {
	for _, p := range cluster.PoliciesOf(s).InForce() {
		names = append(names, PolicyName(p))
	}
	for t := range cluster.All[cluster.Trial](s) {
		names = append(names, PolicyName(t.Policy()))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// PolicyKind is the kind of a policy as YAML has it.
func PolicyKind(p cluster.Policy) string { return kindOf(p) }

func kindOf(p cluster.Policy) string {
	switch {
	case p.Scope == cluster.ScopeNetwork && p.Name == cluster.EgressPolicyName:
		return policy.EgressNetworkPolicy.String()
	case p.Scope == cluster.ScopeNetwork:
		return policy.NetworkPolicy.String()
	case p.Scope == cluster.ScopeCluster:
		return policy.ClusterNetworkPolicy.String()
	}
	return p.Scope
}

// Unenforced are the hosts that do not enforce policies up to a level, by name.
func Unenforced(s *cluster.Snapshot, level uint8) (list []cluster.Node) {
	for n := range cluster.All[cluster.Node](s) {
		if n.Enforces < level {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b cluster.Node) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// protocols by their names.
var protocols = map[string]uint8{"tcp": policy.TCP, "udp": policy.UDP, "sctp": policy.SCTP, "icmp": policy.ICMP}

// Explain says whether policies let a connection through. told is what this host's containers were told by name. Its
// errors are the user's.
func Explain(s *cluster.Snapshot, self cluster.NodeID, told []policy.Answer, r api.ExplainRequest) (api.Explanation, error) {
	proto, port, what, err := protocolOf(r)
	if err != nil {
		return api.Explanation{}, err
	}
	from, to, err := pairOf(s, r.From, r.To)
	if err != nil {
		return api.Explanation{}, err
	}
	if proto == policy.ICMP && to.addr.Is6() {
		const echo = 128
		proto, port = policy.ICMPv6, echo
	}
	w := worlds.Of(s, self)
	w.Answers = told
	out := api.Explanation{From: from.body(s), To: to.body(s), What: what}
	if len(w.Policies) == 0 {
		out.Allowed, out.Notes = true, []string{"there are no policies"}
		out.Egress, out.Ingress = api.Decision{Allowed: true, Why: "no policy isolates it"}, api.Decision{Allowed: true, Why: "no policy isolates it"}
	} else {
		v := w.Verdict(from.of(), to.of(), proto, port)
		out.Allowed, out.Egress, out.Ingress = v.Allowed, decision(s, v.Egress), decision(s, v.Ingress)
	}
	out.Tried = explainTried(s, self, told, from.of(), to.of(), proto, port)
	for _, u := range w.Unread {
		out.Notes = append(out.Notes, fmt.Sprintf("this host cannot read all of the policy %s, and takes it to deny what it cannot read", u.Policy.Key().ID))
	}
	for _, end := range []place{from, to} {
		if n, known := cluster.Get[cluster.Node](s, string(end.host)); end.ID != "" && known && n.Enforces < w.Level() {
			out.Notes = append(out.Notes, "host "+n.Name+" does not enforce policies: what they deny at "+end.name()+" passes")
		}
	}
	if proto == policy.SCTP && len(w.Policies) > 0 {
		out.Notes = append(out.Notes, sctp(s, from, to)...)
	}
	for _, end := range []place{from, to} {
		if n, known := cluster.Get[cluster.Node](s, string(end.host)); end.ID != "" && known && end.host != self && !bytes.Equal(n.PolicyKeys, cluster.KeyPrints(cluster.PoliciesOf(s).Keys())) {
			out.Notes = append(out.Notes, "host "+n.Name+" goes by other keys for policies than this host, and may not enforce the same at "+end.name())
		}
	}
	names := w.NamesOf(from.ID)
	if len(names) > 0 && to.ID == "" && from.host == self {
		open := 0
		for _, a := range told {
			if a.Endpoint == from.ID && !a.Past {
				open++
			}
		}
		out.Notes = append(out.Notes, fmt.Sprintf("%s can have %d addresses open by name, each counted for each of its names, and has %d", from.name(), answers.Most, open))
	}
	if len(names) > 0 && to.ID == "" && to.domain == "" && !out.Egress.Allowed && from.host == self {
		out.Notes = append(out.Notes, fmt.Sprintf("%s reaches some others by name alone (%s), and it was not told %s for one of these by its host's resolver of late", from.name(), domains(names), to.addr))
	}
	if why := apart(s, from, to); why != "" {
		out.Notes = append(out.Notes, why)
	}
	for _, end := range []place{from, to} {
		if why := nobodys(s, end); why != "" {
			out.Notes = append(out.Notes, why)
		}
	}
	return out, nil
}

// sctp says at which ends rules about ports of SCTP come to something else than what they say.
func sctp(s *cluster.Snapshot, ends ...place) (notes []string) {
	for _, end := range ends {
		n, known := cluster.Get[cluster.Node](s, string(end.host))
		if end.ID != "" && known && n.Datapath == "userspace" {
			notes = append(notes, "host "+n.Name+" tells no ports of SCTP (Open vSwitch's userspace datapath): rules about "+end.name()+" that let some ports of it through let none through there, and those that deny some, or pass some on, deny all of SCTP")
		}
	}
	return notes
}

// domains are some of a list of names, for people.
func domains(names []policy.Domain) string {
	const shown = 5
	var texts []string
	for _, d := range names[:min(shown, len(names))] {
		texts = append(texts, string(d))
	}
	if len(names) > shown {
		texts = append(texts, "...")
	}
	return strings.Join(texts, ", ")
}

// nobodys says that an address of a network's subnets is no container's, and not the gateway's.
func nobodys(s *cluster.Snapshot, p place) string {
	if p.ID != "" || p.domain != "" {
		return ""
	}
	for n := range cluster.All[cluster.Subnet](s) {
		if n.Prefix.Contains(p.addr) && n.Gateway != p.addr {
			return fmt.Sprintf("no container has the address %s of network %s", p.addr, n.Network)
		}
	}
	return ""
}

// apart says why two endpoints do not reach each other, whatever policies say.
func apart(s *cluster.Snapshot, from, to place) string {
	a, known := cluster.Get[cluster.Network](s, from.Network)
	b, both := cluster.Get[cluster.Network](s, to.Network)
	if !known || !both || s.Realms().Meet(a, b) {
		return ""
	}
	return fmt.Sprintf("nothing passes between the networks %s and %s, whatever policies say: `grapevine network join %s %s` makes them one", a.Name, b.Name, a.Name, b.Name)
}

func protocolOf(r api.ExplainRequest) (proto uint8, port uint16, what string, err error) {
	name := strings.ToLower(r.Proto)
	if name == "" {
		if name = "tcp"; r.Port == 0 {
			name = "icmp"
		}
	}
	proto, known := protocols[name]
	switch {
	case !known:
		return 0, 0, "", fmt.Errorf("protocol %.40q is unknown: tcp, udp, sctp or icmp", r.Proto)
	case proto == policy.ICMP && r.Port != 0:
		return 0, 0, "", fmt.Errorf("icmp has no port: leave %d out", r.Port)
	case proto == policy.ICMP:
		const echo = 8
		return proto, echo, "ping", nil
	case r.Port == 0:
		return 0, 0, "", fmt.Errorf("%s needs a port: TO:PORT/%s", name, name)
	}
	return proto, r.Port, fmt.Sprintf("port %d/%s", r.Port, name), nil
}

// place is an end of a connection: an endpoint, or an address that is none's, or a name of DNS.
type place struct {
	cluster.Endpoint
	addr   netip.Addr
	host   cluster.NodeID
	domain policy.Domain
}

func (p place) of() policy.Peer {
	return policy.Peer{Endpoint: p.ID, Addr: p.addr, Name: string(p.domain)}
}

func (p place) name() string { return cmp.Or(p.Name, p.addr.String()) }

func (p place) body(s *cluster.Snapshot) api.Peer {
	out := api.Peer{Name: cmp.Or(p.Name, string(p.domain)), Network: p.Network, Addr: p.addr}
	if p.ID != "" {
		out.Host = s.HostName(p.host)
	}
	return out
}

// pairOf finds both ends. A container may be on several networks: it is the one that the other end is on.
func pairOf(s *cluster.Snapshot, from, to string) (a, b place, err error) {
	as, err := placesOf(s, from)
	if err != nil {
		return a, b, err
	}
	bs, err := placesOf(s, to)
	if err != nil {
		domain, none := policy.ParseDomain(to)
		if none != nil || strings.Contains(to, "*") {
			return a, b, err
		}
		bs = []place{{domain: domain}}
	}
	var pairs, near [][2]place
	why := "have no addresses of one family"
	for _, a := range as {
		for _, b := range bs {
			if a.ID != "" && a.ID == b.ID {
				why = "are one container"
				continue
			}
			if b.domain != "" && len(a.Addrs) > 0 {
				a.addr = a.Addrs[0]
				pairs = append(pairs, [2]place{a, b})
				continue
			}
			if a.addr, b.addr = sameFamily(a, b); !a.addr.IsValid() || !b.addr.IsValid() {
				continue
			}
			pairs = append(pairs, [2]place{a, b})
			if a.Network == b.Network {
				near = append(near, [2]place{a, b})
			}
		}
	}
	if len(near) > 0 {
		pairs = near
	}
	switch len(pairs) {
	case 0:
		return a, b, fmt.Errorf("%s and %s %s", from, to, why)
	case 1:
		return pairs[0][0], pairs[0][1], nil
	}
	for i, text := range []string{from, to} {
		var all []string
		for _, p := range pairs {
			if one := fmt.Sprintf("%s (%s, host %s)", p[i].addr, p[i].Network, s.HostName(p[i].host)); !slices.Contains(all, one) {
				all = append(all, one)
			}
		}
		if len(all) > 1 {
			const shown = 5
			slices.Sort(all)
			return a, b, fmt.Errorf("there are several %s: name one by its address: %s", text, strings.Join(all[:min(shown, len(all))], ", "))
		}
	}
	return pairs[0][0], pairs[0][1], nil
}

// sameFamily are addresses of both, IPv4 before IPv6; invalid if there are none.
func sameFamily(a, b place) (x, y netip.Addr) {
	all := func(p place) []netip.Addr {
		if p.addr.IsValid() {
			return []netip.Addr{p.addr}
		}
		return p.Addrs
	}
	for _, x := range all(a) {
		for _, y := range all(b) {
			if x.Is4() == y.Is4() {
				return x, y
			}
		}
	}
	return netip.Addr{}, netip.Addr{}
}

// EndpointsOf are the endpoints that a text may mean, as placesOf says; that there is none is an error.
func EndpointsOf(s *cluster.Snapshot, text string) (list []cluster.Endpoint, err error) {
	places, err := placesOf(s, text)
	if err != nil {
		return nil, err
	}
	for _, p := range places {
		if p.ID == "" {
			return nil, fmt.Errorf("no container has the address %s: see `grapevine endpoints`", text)
		}
		list = append(list, p.Endpoint)
	}
	return list, nil
}

// ofService is an error that says what to name in place of a service; nil: there is none such.
func ofService(s *cluster.Snapshot, is func(cluster.Service) bool) error {
	for v := range cluster.All[cluster.Service](s) {
		if is(v) {
			return fmt.Errorf("this is service %s of network %s, which leads to a container in the container that connects: name one of those that `grapevine service show %s` lists, with the port that it has there", v.Name, v.Network, v.Key().ID)
		}
	}
	return nil
}

// placesOf are the endpoints that a text may mean: an address, an endpoint's ID or the beginning of it, a
// container's name, ID or alias, or one of these on a network (NETWORK/NAME).
func placesOf(s *cluster.Snapshot, text string) (list []place, err error) {
	addr, _ := netip.ParseAddr(text)
	addr = addr.Unmap().WithZone("")
	network, name, on := strings.Cut(text, "/")
	if !on {
		name = text
	}
	const shortest = 8 // digits of an ID
	named, aliased := []place{}, []place{}
	for e := range cluster.All[cluster.Endpoint](s) {
		is := func(id string) bool { return len(name) >= shortest && strings.HasPrefix(id, name) }
		at := place{Endpoint: e, host: e.Host}
		switch {
		case addr.IsValid() && slices.Contains(e.Addrs, addr):
			at.addr = addr
			list = append(list, at)
		case addr.IsValid() || on && e.Network != network:
		case e.Name == name || is(e.ID) || is(e.Container):
			named = append(named, at)
		case slices.Contains(e.AllAliases(), name):
			aliased = append(aliased, at)
		}
	}
	switch {
	case len(list) > 0:
		return list[:1], nil
	case addr.IsValid():
		if err := ofService(s, func(v cluster.Service) bool { return slices.Contains(v.Addrs, addr) }); err != nil {
			return nil, err
		}
		return []place{{addr: addr}}, nil
	case len(named) > 0:
		return named, nil
	case len(aliased) > 0:
		return aliased, nil
	}
	if err := ofService(s, func(v cluster.Service) bool { return v.Name == name && (!on || v.Network == network) }); err != nil {
		return nil, err
	}
	if on {
		return nil, fmt.Errorf("there is no container %s on a network %s: see `grapevine endpoints`", name, network)
	}
	return nil, fmt.Errorf("there is no container %s on a network of the cluster, and it is no address: see `grapevine endpoints`", text)
}

func decision(s *cluster.Snapshot, d policy.Decision) api.Decision {
	out := api.Decision{Allowed: d.Allowed, Rules: rules(d.Rules), Passed: rules(d.Passed)}
	for _, what := range d.Unknown { // "the labels of ID": people know it by its name
		head, id, _ := strings.Cut(what, "labels of ")
		if e, known := cluster.Get[cluster.Endpoint](s, id); known {
			what = head + "labels of " + cmp.Or(e.Name, id)
		}
		id, told := strings.CutSuffix(strings.TrimPrefix(what, "what "), " was told by name")
		if e, known := cluster.Get[cluster.Endpoint](s, id); told && known {
			what = fmt.Sprintf("what %s was told by name: only its host knows, %s", cmp.Or(e.Name, id), s.HostName(e.Host))
		}
		out.Unknown = append(out.Unknown, what)
	}
	for _, a := range d.Answers {
		out.Told = append(out.Told, api.ToldName{Name: a.Name, Asked: a.Asked, Until: a.Until})
	}
	switch d.Reason {
	case policy.Outside:
		out.Why = "no container of the cluster: nothing to decide"
	case policy.Unisolated:
		out.Why = "no policy isolates it"
	case policy.ByRule:
		out.Why = "by a rule"
	case policy.Isolated:
		out.Why = "a policy isolates it, and none allows this"
	case policy.PassUnsure:
		out.Why = "it is not known whether a rule that passes on applies"
	}
	return out
}

func rules(refs []policy.Ref) (out []api.PolicyRule) {
	for _, r := range refs {
		out = append(out, api.PolicyRule{Rule: r.String(), Action: r.Action.String(), Author: r.Author, Version: r.Version})
	}
	return out
}
