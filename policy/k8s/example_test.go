package k8s_test

import (
	"fmt"
	"net/netip"

	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/k8s"
)

// A policy as Kubernetes has it is read, and says which connections are let through, and why.
func ExampleParse() {
	policies, err := k8s.Parse([]byte(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}}]
    ports: [{port: 5432}]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	endpoint := func(id, app, addr string) policy.Endpoint {
		return policy.Endpoint{ID: id, Network: "shop", Local: true, Known: true, Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Labels: map[string]string{"app": app}}
	}
	world := policy.World{
		Networks:  []policy.Network{{Name: "shop"}},
		Endpoints: []policy.Endpoint{endpoint("db1", "db", "10.0.0.1"), endpoint("web1", "web", "10.0.0.2"), endpoint("job1", "job", "10.0.0.3")},
		Policies:  policies,
	}
	for _, from := range []string{"web1", "job1"} {
		v := world.Verdict(policy.Peer{Endpoint: from}, policy.Peer{Endpoint: "db1"}, policy.TCP, 5432)
		fmt.Println(from, v.Allowed)
	}
	// Output:
	// web1 true
	// job1 false
}
