package plain

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/grapevine-net/grapevine/policy"
)

var notInNames = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^a-z0-9.]+`) })

// Allow is the policy that lets from call to, one of the endpoints: a container or a service, and a port.
func Allow(from, to string, endpoints []policy.Endpoint) (p policy.Policy, err error) {
	source, err := ParsePart(from)
	if err != nil {
		return p, err
	}
	if err := callers([]Part{source}); err != nil {
		return p, err
	}
	if len(source.ports) > 0 {
		return p, fmt.Errorf("%.80q: the port is that of whom it calls; write it behind that", from)
	}
	dest, err := ParsePart(to)
	if err != nil {
		return p, err
	}
	if dest.name == "" {
		return p, fmt.Errorf("%.80q is no container that takes calls; write the name of a container or a Compose service, or NETWORK/NAME", to)
	}
	subject, network, err := dest.found(endpoints)
	if err != nil {
		return p, err
	}
	r := source.rule(policy.Accept, network, subject)
	r.Name, r.Ports, r.AnyPort = "", dest.ports, len(dest.ports) == 0
	for i := range r.Ports {
		if r.Ports[i].Proto == 0 {
			r.Ports[i].Proto = policy.TCP // NetworkPolicies have no ports of any protocol
		}
	}
	return policy.Policy{
		Key:     policy.Key{Kind: policy.NetworkPolicy, Network: network, Name: PolicyName("allow-" + from + "-" + to)},
		Subject: policy.Set{Network: network, Endpoints: subject.selector()}, IsolatesIngress: true, Ingress: []policy.Rule{r},
	}, nil
}

// PolicyName is a text as a policy may be called.
func PolicyName(text string) string {
	name := strings.Trim(notInNames().ReplaceAllString(strings.ToLower(text), "-"), "-.")
	const most = 200
	return strings.Trim(strings.ReplaceAll(name[:min(len(name), most)], "..", "."), "-.")
}

// Nobody reports whether from names a container or a service that none of the endpoints is, as far as their labels are known.
func Nobody(from string, endpoints []policy.Endpoint) bool {
	p, err := ParsePart(from)
	return err == nil && p.name != "" && !slices.ContainsFunc(endpoints, func(e policy.Endpoint) bool {
		return (p.network == "" || e.Network == p.network) && (!e.Known || e.Labels[NameLabel] == p.name || e.Labels[ServiceLabel] == p.name)
	})
}

// found is the one container or service of a name that there is.
func (p Part) found(endpoints []policy.Endpoint) (o owner, network string, err error) {
	type at struct {
		owner
		network string
	}
	var all []at
	unknown := false
	for _, e := range endpoints {
		if p.network != "" && e.Network != p.network {
			continue
		}
		unknown = unknown || !e.Known
		one := at{ownerOf(e.Labels), e.Network}
		is := one.service == p.name
		if !is && e.Labels[NameLabel] == p.name {
			is, one.owner = true, owner{one.project, one.service, p.name}
		}
		if is && e.Known && !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	switch {
	case len(all) == 1:
		return all[0].owner, all[0].network, nil
	case len(all) > 1:
		var texts []string
		for _, one := range all {
			texts = append(texts, strings.TrimSuffix(one.network+"/"+p.name+" of project "+one.project, " of project "))
		}
		slices.Sort(texts)
		return o, "", fmt.Errorf("there are several %s: %s; write NETWORK/%s, or a policy (`grapevine policy apply`)", p.name, strings.Join(texts, ", "), p.name)
	case unknown:
		return o, "", fmt.Errorf("there is no container and no service %s whose labels are known; see `grapevine endpoints`", p.name)
	}
	return o, "", errors.New("there is no container and no service " + p.name + " on a network of the cluster; see `grapevine endpoints`")
}
