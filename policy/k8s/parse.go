package k8s

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/grapevine-net/grapevine/policy"
)

// MaxPolicy is how many bytes a policy may have, as Format writes it.
const MaxPolicy = 32 << 10

// The words of the API.
const (
	networkingV1 = "networking.k8s.io/v1"
	clusterAlpha = "policy.networking.k8s.io/v1alpha2"
	clusterBeta  = "policy.networking.k8s.io/v1beta1"
	openshiftV1  = "network.openshift.io/v1"
)

// Parse reads the policies of a text: one or more documents, or lists (kind: List) of them.
func Parse(text []byte) (list []policy.Policy, err error) {
	found, err := documents(text)
	if err != nil {
		return nil, err
	}
	type once struct {
		key policy.Key
		try bool // of one that is in force another writing may be tried
	}
	seen := map[once]int{}
	r := &reader{}
	for i, document := range found {
		r.document = i + 1
		if document.Content == nil {
			continue
		}
		var read []policy.Policy
		if read = r.object(r.value(document.Content[0], "", 0), 0); r.err != nil {
			return nil, r.err
		}
		for _, p := range read {
			if other, twice := seen[once{p.Key, p.Try}]; twice {
				return nil, fmt.Errorf("document %d: %s %s is in document %d already; write it once", i+1, p.Kind, p.Key, other)
			}
			if size := len(Format(p)); size > MaxPolicy {
				return nil, fmt.Errorf("document %d: %s %s has %d bytes; split it into policies of at most %d", i+1, p.Kind, p.Key, size, MaxPolicy)
			}
			seen[once{p.Key, p.Try}] = i + 1
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("the text has no policy; write a NetworkPolicy, a ClusterNetworkPolicy or an EgressNetworkPolicy")
	}
	return list, nil
}

// Stored reads one policy that an agent has accepted, perhaps a later release than this one. What
// is not understood here fails closed, as the API asks: of such rules those that accept match
// nothing, and all others deny everything; such a subject is everybody, whom nothing is accepted
// for; such a NetworkPolicy isolates in both directions. The error says what it was. If not even
// the kind is understood, the policy has none.
func Stored(text []byte) (p policy.Policy, err error) {
	found, err := documents(text)
	if err != nil {
		return p, err
	}
	if len(found) != 1 || found[0].Content == nil {
		return p, fmt.Errorf("the text has %d documents; a stored policy is one", len(found))
	}
	r := &reader{document: 1, closed: true}
	list := r.object(r.value(found[0].Content[0], "", 0), 1)
	if len(list) != 1 || r.err != nil {
		return policy.Policy{}, r.err
	}
	return list[0], r.unread
}

// part reads a part of a policy. If it is not understood, that is an error; of a stored policy it is
// noted, and what the part is instead is the caller's to say.
func (r *reader) part(read func()) (understood bool) {
	if r.err != nil {
		return false
	}
	read()
	if r.err == nil || !r.closed {
		return r.err == nil
	}
	if r.unread == nil {
		r.unread = r.err
	}
	r.err = nil
	return false
}

// object reads a policy or a list of them.
func (r *reader) object(v at, depth int) (list []policy.Policy) {
	kind, version := r.peek(v, "kind"), r.peek(v, "apiVersion")
	if r.err != nil {
		return nil
	}
	switch {
	case kind == "List" && version == "v1", (kind == "NetworkPolicyList" || kind == "ClusterNetworkPolicyList" || kind == "EgressNetworkPolicyList") && depth == 0:
		if depth > 0 {
			r.fail(v, "is a list in a list; write the policies in one")
			return nil
		}
		f := r.fields(v, "apiVersion", "kind", "metadata", "items")
		for _, item := range r.list(f["items"], maxDocuments) {
			list = append(list, r.object(item, depth+1)...)
		}
		return list
	case kind == "NetworkPolicy" && version == networkingV1:
		return []policy.Policy{r.networkPolicy(v)}
	case kind == "ClusterNetworkPolicy" && (version == clusterAlpha || version == clusterBeta):
		return []policy.Policy{r.clusterPolicy(v)}
	case kind == "EgressNetworkPolicy" && version == openshiftV1:
		return []policy.Policy{r.egressPolicy(v)}
	case kind == "AdminNetworkPolicy" || kind == "BaselineAdminNetworkPolicy":
		r.fail(v, "%s is not supported; write a ClusterNetworkPolicy (%s), which follows it", kind, clusterBeta)
	default:
		r.fail(v, "kind %.80q of apiVersion %.80q is not supported; allowed: NetworkPolicy of %s, ClusterNetworkPolicy of %s or %s, EgressNetworkPolicy of %s",
			kind, version, networkingV1, clusterBeta, clusterAlpha, openshiftV1)
	}
	return nil
}

// peek is a field of a mapping that says what the mapping is.
func (r *reader) peek(v at, name string) string {
	f := r.field(v, name)
	if f.Node == nil {
		r.fail(v, "%s is missing", name)
	}
	return r.text(f)
}

// field is one of whatever fields a mapping has.
func (r *reader) field(v at, name string) (f at) {
	for _, p := range r.pairs(v) {
		if p.key == name {
			f = p.value
		}
	}
	return f
}

var (
	policyName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
	})
	networkName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`) })
	portName    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`) })
)

// metadata reads a policy's name, and its network if it is on one. Labels, annotations and what the
// API's server adds mean nothing to anybody here.
func (r *reader) metadata(v at, parent at, network bool) (key policy.Key) {
	allowed := []string{"name", "labels", "annotations", "creationTimestamp", "generation", "managedFields", "resourceVersion", "uid", "selfLink", "ownerReferences", "finalizers"}
	if network {
		allowed = append(allowed, "namespace")
	}
	f := r.fields(v, allowed...)
	r.need(parent, v, "metadata")
	r.need(v, f["name"], "name")
	key.Name = r.text(f["name"])
	if r.err == nil && (len(key.Name) > 253 || !policyName().MatchString(key.Name)) {
		r.fail(f["name"], "%.80q is no name; take lower case letters, digits, hyphens and dots, at most 253", key.Name)
	}
	if network {
		r.need(v, f["namespace"], "namespace (the network's name)")
		key.Network = r.text(f["namespace"])
		if r.err == nil && (len(key.Network) > 253 || !networkName().MatchString(key.Network)) {
			r.fail(f["namespace"], "%.80q is no name of a network", key.Network)
		}
	}
	return key
}

// need says that a field is missing.
func (r *reader) need(parent, v at, name string) {
	if r.err == nil && !v.there() {
		if parent.Node == nil {
			parent = v
		}
		r.fail(parent, "%s is missing", name)
	}
}

func (r *reader) networkPolicy(v at) (p policy.Policy) {
	f := r.fields(v, "apiVersion", "kind", "metadata", "spec", "status")
	p.Key = r.metadata(f["metadata"], v, true)
	p.Log, p.Try = r.annotations(f["metadata"])
	p.Kind = policy.NetworkPolicy
	r.ranges = 0
	r.need(v, f["spec"], "spec")
	p.Subject.Network = p.Network
	var s map[string]at
	var ingress, egress []at
	understood := r.part(func() {
		s = r.fields(f["spec"], "podSelector", "policyTypes", "ingress", "egress")
		p.Subject.Endpoints = r.selector(s["podSelector"])
		ingress, egress = r.list(s["ingress"], maxItems), r.list(s["egress"], maxItems)
		for _, t := range r.list(s["policyTypes"], 2) {
			switch r.oneOf(t, "Ingress", "Egress") {
			case "Ingress":
				p.IsolatesIngress = true
			case "Egress":
				p.IsolatesEgress = true
			}
		}
		if !p.IsolatesIngress && !p.IsolatesEgress {
			p.IsolatesIngress, p.IsolatesEgress = true, len(egress) > 0
		}
	})
	if !understood {
		p.Subject.Endpoints, p.IsolatesIngress, p.IsolatesEgress = nil, true, true
		return p
	}
	for _, rule := range ingress {
		r.networkRule(rule, p.Network, "from", &p.Ingress)
	}
	for _, rule := range egress {
		r.networkRule(rule, p.Network, "to", &p.Egress)
	}
	// Rules of a direction that policyTypes leaves out mean nothing to Kubernetes either.
	if !p.IsolatesIngress {
		p.Ingress = nil
	}
	if !p.IsolatesEgress {
		p.Egress = nil
	}
	return p
}

func (r *reader) networkRule(v at, network, peers string, rules *[]policy.Rule) {
	rule := policy.Rule{Action: policy.Accept}
	if r.part(func() {
		f := r.fields(v, "ports", peers)
		from, ports := r.list(f[peers], maxItems), r.list(f["ports"], maxItems)
		rule.AnyPeer, rule.AnyPort = len(from) == 0, len(ports) == 0
		for _, peer := range from {
			r.networkPeer(peer, network, &rule)
		}
		for _, port := range ports {
			rule.Ports = append(rule.Ports, r.networkPort(port))
		}
	}) {
		*rules = append(*rules, rule)
	}
}

func (r *reader) networkPeer(v at, network string, rule *policy.Rule) {
	f := r.fields(v, "podSelector", "namespaceSelector", "ipBlock")
	pods, networks, block := f["podSelector"], f["namespaceSelector"], f["ipBlock"]
	switch {
	case block.there() && (pods.there() || networks.there()):
		r.fail(block, "stands alone; put podSelector and namespaceSelector into an item of their own")
	case block.there():
		rule.Blocks = append(rule.Blocks, r.block(block))
	case networks.there():
		rule.Peers = append(rule.Peers, policy.Set{Networks: r.selector(networks), Endpoints: r.selector(pods)})
	case pods.there():
		rule.Peers = append(rule.Peers, policy.Set{Network: network, Endpoints: r.selector(pods)})
	default:
		r.fail(v, "selects nobody; write podSelector, namespaceSelector or ipBlock ({} selects all)")
	}
}

func (r *reader) block(v at) (b policy.Block) {
	f := r.fields(v, "cidr", "except")
	r.need(v, f["cidr"], "cidr")
	b.Prefix = r.prefix(f["cidr"])
	r.ranges++
	for _, e := range r.list(f["except"], maxItems) {
		p := r.prefix(e)
		if r.err == nil && (p.Bits() <= b.Prefix.Bits() || !b.Prefix.Contains(p.Addr())) {
			r.fail(e, "%s is no part of %s", p, b.Prefix)
		}
		b.Except = append(b.Except, p)
		r.ranges += p.Bits() - b.Prefix.Bits() // so often is what is around it halved
	}
	if r.ranges > maxRanges {
		r.fail(v, "with its exceptions the policy comes to %d ranges of addresses; at most %d are allowed", r.ranges, maxRanges)
	}
	return b
}

func (r *reader) prefix(v at) netip.Prefix {
	s := r.text(v)
	if r.err != nil {
		return netip.Prefix{}
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		r.fail(v, "%.80q is no range of addresses like 10.0.0.0/8 or fd00::/8", s)
		return netip.Prefix{}
	}
	return p.Masked()
}

var protocols = map[string]uint8{"TCP": policy.TCP, "UDP": policy.UDP, "SCTP": policy.SCTP}

func (r *reader) networkPort(v at) (p policy.Port) {
	f := r.fields(v, "protocol", "port", "endPort")
	p.Proto = policy.TCP
	if proto := f["protocol"]; proto.there() {
		p.Proto = protocols[r.oneOf(proto, "TCP", "UDP", "SCTP")]
	}
	port, end := f["port"], f["endPort"]
	switch {
	case !port.there() && end.there():
		r.fail(end, "needs a port, where the range begins")
	case !port.there():
		p.To = 65535
	case port.Kind == yaml.ScalarNode && port.ShortTag() == "!!str":
		if p.Name = r.portName(port); end.there() {
			r.fail(end, "needs a port that is a number, not a name")
		}
	default:
		p.From = uint16(r.number(port, 1, 65535))
		if p.To = p.From; end.there() {
			p.To = uint16(r.number(end, int(p.From), 65535))
		}
	}
	return p
}

func (r *reader) portName(v at) string {
	s := r.text(v)
	if r.err == nil && (!portName().MatchString(s) || !strings.ContainsFunc(s, func(c rune) bool { return c >= 'a' && c <= 'z' })) {
		r.fail(v, "%.80q is no name of a port; take lower case letters, digits and hyphens, or a number without quotes", s)
	}
	return s
}

// selector reads a label selector, and puts it into the one order that equal ones have.
func (r *reader) selector(v at) (s policy.Selector) {
	f := r.fields(v, "matchLabels", "matchExpressions")
	for _, l := range r.pairs(f["matchLabels"]) {
		r.labelKey(l.value, l.key)
		s = append(s, policy.Requirement{Key: l.key, Op: policy.In, Values: []string{r.text(l.value)}})
	}
	for _, e := range r.list(f["matchExpressions"], maxItems) {
		s = append(s, r.expression(e))
	}
	slices.SortStableFunc(s, compareRequirements)
	return slices.CompactFunc(s, func(a, b policy.Requirement) bool { return compareRequirements(a, b) == 0 })
}

func compareRequirements(a, b policy.Requirement) int {
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Op, b.Op), slices.Compare(a.Values, b.Values))
}

var operators = map[string]policy.Op{"In": policy.In, "NotIn": policy.NotIn, "Exists": policy.Exists, "DoesNotExist": policy.DoesNotExist}

func (r *reader) expression(v at) (q policy.Requirement) {
	f := r.fields(v, "key", "operator", "values")
	r.need(v, f["key"], "key")
	r.need(v, f["operator"], "operator")
	q.Key = r.text(f["key"])
	r.labelKey(f["key"], q.Key)
	q.Op = operators[r.oneOf(f["operator"], "In", "NotIn", "Exists", "DoesNotExist")]
	for _, value := range r.list(f["values"], maxItems) {
		q.Values = append(q.Values, r.text(value))
	}
	switch needs := q.Op == policy.In || q.Op == policy.NotIn; {
	case r.err != nil:
	case needs && len(q.Values) == 0:
		r.fail(v, "values is missing; %s needs at least one", q.Op)
	case !needs && len(q.Values) > 0:
		r.fail(f["values"], "%s takes no values", q.Op)
	}
	slices.Sort(q.Values)
	q.Values = slices.Compact(q.Values)
	return q
}

func (r *reader) labelKey(v at, key string) {
	if r.err == nil && (key == "" || len(key) > 317) {
		r.fail(v, "a label's name has 1 to 317 characters")
	}
}

// maxClusterItems is how many items the lists of a ClusterNetworkPolicy have at most.
const maxClusterItems = 25

func (r *reader) clusterPolicy(v at) (p policy.Policy) {
	f := r.fields(v, "apiVersion", "kind", "metadata", "spec", "status")
	p.Key = r.metadata(f["metadata"], v, false)
	p.Log, p.Try = r.annotations(f["metadata"])
	p.Kind = policy.ClusterNetworkPolicy
	r.need(v, f["spec"], "spec")
	var s map[string]at
	var ingress, egress []at
	understood := r.part(func() {
		s = r.fields(f["spec"], "tier", "priority", "subject", "ingress", "egress")
		for _, name := range []string{"tier", "priority", "subject"} {
			r.need(f["spec"], s[name], name)
		}
		p.Tier = policy.Admin
		if r.oneOf(s["tier"], "Admin", "Baseline") == "Baseline" {
			p.Tier = policy.Baseline
		}
		p.Priority = r.number(s["priority"], 0, 1000)
		p.Subject, _ = r.clusterSet(s["subject"], r.fields(s["subject"], "namespaces", "pods"))
		ingress, egress = r.list(s["ingress"], maxClusterItems), r.list(s["egress"], maxClusterItems)
	})
	if !understood {
		// Whom it is about, or when, is not known: what it denies, it denies to everybody, first.
		p.Tier, p.Priority, p.Subject = policy.Admin, 0, policy.Set{}
		r.part(func() {
			ingress, egress = r.list(r.field(f["spec"], "ingress"), maxItems), r.list(r.field(f["spec"], "egress"), maxItems)
		})
	}
	for _, rule := range ingress {
		r.clusterRule(rule, "from", &p.Ingress)
	}
	for _, rule := range egress {
		r.clusterRule(rule, "to", &p.Egress)
	}
	if !understood && r.err == nil {
		p.Ingress, p.Egress = denying(p.Ingress), denying(p.Egress)
	}
	return p
}

// denying are rules without those that accept; what passes on may be the last word here.
func denying(rules []policy.Rule) (list []policy.Rule) {
	for _, r := range rules {
		if r.Action == policy.Accept {
			continue
		}
		if r.Action == policy.Pass {
			r.Action = policy.Drop
		}
		list = append(list, r)
	}
	return list
}

// clusterSet reads who is selected by labels. There may be other ways to say it, if one is there.
func (r *reader) clusterSet(v at, f map[string]at) (s policy.Set, ok bool) {
	written := 0
	for _, field := range f {
		if field.there() {
			written++
		}
	}
	if r.err == nil && written != 1 {
		r.fail(v, "has %d of its fields; write exactly one", written)
	}
	if networks := f["namespaces"]; networks.there() {
		return policy.Set{Networks: r.selector(networks)}, true
	}
	pods := f["pods"]
	if !pods.there() {
		return s, false
	}
	p := r.fields(pods, "namespaceSelector", "podSelector")
	r.need(pods, p["podSelector"], "podSelector")
	return policy.Set{Networks: r.selector(p["namespaceSelector"]), Endpoints: r.selector(p["podSelector"])}, true
}

var actions = map[string]policy.Action{"Accept": policy.Accept, "Deny": policy.Drop, "Pass": policy.Pass, "Reject": policy.Reject}

func (r *reader) clusterRule(v at, peers string, rules *[]policy.Rule) {
	var rule policy.Rule
	switch understood := r.part(func() { rule = r.clusterRuleBody(v, peers) }); {
	case understood:
		*rules = append(*rules, rule)
	case r.err == nil:
		accepts := false
		r.part(func() { accepts = r.text(r.field(v, "action")) == policy.Accept.String() })
		if !accepts {
			*rules = append(*rules, policy.Rule{Action: policy.Drop, AnyPeer: true, AnyPort: true})
		}
	}
}

func (r *reader) clusterRuleBody(v at, peers string) (rule policy.Rule) {
	f := r.fields(v, "name", "action", peers, "protocols")
	r.need(v, f["action"], "action")
	if f["name"].there() {
		if rule.Name = r.text(f["name"]); len(rule.Name) > 100 {
			r.fail(f["name"], "has %d bytes; at most 100 are allowed", len(rule.Name))
		}
	}
	rule.Action = actions[r.oneOf(f["action"], "Accept", "Deny", "Pass", "Reject")] // the last one is grapevine's own
	from := r.list(f[peers], maxClusterItems)
	if r.err == nil && len(from) == 0 {
		r.fail(v, "%s is missing; write at least one item (namespaces: {} is all)", peers)
	}
	for _, peer := range from {
		r.clusterPeer(peer, peers == "to", &rule)
	}
	protos := r.list(f["protocols"], maxClusterItems)
	if r.err == nil && f["protocols"].there() && len(protos) == 0 {
		r.fail(f["protocols"], "is an empty list; leave it out for all protocols")
	}
	rule.AnyPort = len(protos) == 0
	for _, proto := range protos {
		port := r.clusterPort(proto)
		if r.err == nil && port.Name != "" && len(rule.Blocks)+len(rule.Domains) > 0 {
			r.fail(proto, "networks and domainNames have no named ports; write the number")
		}
		rule.Ports = append(rule.Ports, port)
	}
	return rule
}

func (r *reader) clusterPeer(v at, to bool, rule *policy.Rule) {
	var f map[string]at
	if to {
		f = r.fields(v, "namespaces", "pods", "networks", "nodes", "domainNames")
	} else {
		f = r.fields(v, "namespaces", "pods")
	}
	if nodes := f["nodes"]; nodes.there() {
		r.fail(nodes, "hosts cannot be selected; allowed here: namespaces, pods, networks, domainNames")
	}
	r.domains(f["domainNames"], rule)
	set, ok := r.clusterSet(v, f)
	if ok {
		rule.Peers = append(rule.Peers, set)
	}
	networks := f["networks"]
	if r.err == nil && networks.there() && len(networks.Content) == 0 {
		r.fail(networks, "is an empty list; write at least one range")
	}
	for _, n := range r.list(networks, maxClusterItems) {
		p := r.prefix(n)
		if r.err == nil && p.String() != n.Value && p.Addr() != netip.MustParsePrefix(n.Value).Addr() {
			r.fail(n, "%.80q has bits behind its length; write %s", n.Value, p)
		}
		rule.Blocks = append(rule.Blocks, policy.Block{Prefix: p})
	}
}

// domains reads names of DNS.
func (r *reader) domains(v at, rule *policy.Rule) {
	if r.err == nil && v.there() && len(v.Content) == 0 {
		r.fail(v, "is an empty list; write at least one name")
	}
	for _, n := range r.list(v, maxClusterItems) {
		r.domain(n, rule)
	}
}

// domain reads a name of DNS. As Kubernetes' API has it, only rules that accept have any.
func (r *reader) domain(v at, rule *policy.Rule) {
	if r.err == nil && rule.Action != policy.Accept {
		r.fail(v, "is for rules that Accept (of an EgressNetworkPolicy: Allow): whoever is told an address by another name would pass by one that denies; deny networks")
	}
	text := r.text(v)
	d, err := policy.ParseDomain(text)
	if r.err == nil && err != nil {
		r.fail(v, "%v", err)
	}
	rule.Domains = append(rule.Domains, d)
}

// clusterPort reads a protocol and its port.
func (r *reader) clusterPort(v at) (p policy.Port) {
	f := r.fields(v, "tcp", "udp", "sctp", "destinationNamedPort")
	if r.err == nil && len(f) != 1 {
		r.fail(v, "has %d fields; write exactly one of tcp, udp, sctp and destinationNamedPort", len(f))
	}
	for name, value := range f {
		if !value.there() {
			r.fail(value, "is empty; write destinationPort, or leave protocols out for all")
			return p
		}
		if name == "destinationNamedPort" {
			p.Name = r.portName(value)
			return p
		}
		p.Proto = protocols[strings.ToUpper(name)]
		port := r.fields(value, "destinationPort")["destinationPort"]
		r.need(value, port, "destinationPort")
		d := r.fields(port, "number", "range")
		if r.err == nil && d["number"].there() == d["range"].there() {
			r.fail(port, "write either number or range")
		}
		if d["number"].there() {
			p.From = uint16(r.number(d["number"], 1, 65535))
			p.To = p.From
		}
		if d["range"].there() {
			e := r.fields(d["range"], "start", "end")
			r.need(d["range"], e["start"], "start")
			r.need(d["range"], e["end"], "end")
			p.From = uint16(r.number(e["start"], 1, 65535))
			p.To = uint16(r.number(e["end"], min(int(p.From)+1, 65535), 65535))
		}
	}
	return p
}
