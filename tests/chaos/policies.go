package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// apart is a policy by which the networks that are always there do not reach each other. In every other run nothing else keeps
// them apart: they are joined. So what the witnesses of one send to those of the other, in whatever way, is what a policy
// forbids, and none of it ever arrives, whatever strikes.
const (
	apartName = "apart"
	apartOne  = `apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: ` + apartName + `-%[1]s}
spec:
  tier: Admin
  priority: 10
  subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}}
  ingress: [{action: Deny, from: [{namespaces: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}}]}]
  egress: [{action: Reject, to: [{namespaces: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}}]}]
`
)

// forbids says whether policies keep the networks of this run apart. Without connection tracking by zones nobody enforces any.
func forbids(asks bool, seed uint64) bool { return asks && seed%2 == 0 }

// forbid has policies keep the networks apart, on all hosts, and only then makes them one.
func forbid(ctx context.Context, r *run) error {
	text := fmt.Sprintf(apartOne, networks[0], networks[1]) + "---\n" + fmt.Sprintf(apartOne, networks[1], networks[0])
	h := r.lab.Hosts[0]
	if _, err := h.ExecInput(ctx, []byte(text), "grapevine", "policy", "apply", "-f", "-"); err != nil {
		return err
	}
	from, to := r.witnesses[networks[0]+"/"+h.Name].Addr, r.witnesses[networks[1]+"/"+r.lab.Hosts[1].Name].Addr
	for _, h := range r.lab.Hosts {
		if err := r.settle(ctx, r.patience()*time.Minute, func(ctx context.Context) error {
			out, err := h.Grapevine(ctx, "policy", "explain", from, to+":80")
			if err == nil && !strings.Contains(out, apartName) {
				err = fmt.Errorf("host %s does not know the policies: %s", h.Name, out)
			}
			return err
		}); err != nil {
			return err
		}
	}
	_, err := r.lab.Hosts[r.hosts-1].Grapevine(ctx, append([]string{"network", "join"}, networks...)...)
	return err
}

// allow takes it away.
func allow(ctx context.Context, r *run) (err error) {
	for i, argv := range [][]string{
		{"network", "isolate", networks[0]}, {"policy", "delete", "cnp", apartName + "-" + networks[0]}, {"policy", "delete", "cnp", apartName + "-" + networks[1]},
	} {
		_, next := r.lab.Hosts[i%r.hosts].Grapevine(ctx, argv...)
		err = errors.Join(err, next)
	}
	return err
}
