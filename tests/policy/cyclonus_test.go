// Package policy_test holds what says whether package policy is right: Kubernetes' own types, and
// cyclonus, whose cases are those of Kubernetes' conformance and more. They bring hundreds of
// packages, so they are in a module of their own.
package policy_test

import (
	"io"
	"net/netip"
	"testing"

	"github.com/mattfenwick/cyclonus/pkg/connectivity"
	"github.com/mattfenwick/cyclonus/pkg/connectivity/probe"
	"github.com/mattfenwick/cyclonus/pkg/generator"
	"github.com/mattfenwick/cyclonus/pkg/kube"
	"github.com/mattfenwick/cyclonus/pkg/matcher"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/grapevine-net/grapevine/policy"
	"github.com/grapevine-net/grapevine/policy/k8s"
)

// cases and verdicts are how many cyclonus has.
const (
	cases    = 230
	verdicts = 123_669
)

// TestCyclonus: each verdict of each of cyclonus' cases, in both directions.
func TestCyclonus(t *testing.T) {
	logrus.SetOutput(io.Discard)
	mock := kube.NewMockKubernetes(1)
	namespaces := []string{"x", "y", "z"}
	resources, err := probe.NewDefaultResources(mock, namespaces, []string{"a", "b", "c"}, []int{80, 81},
		[]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, nil, 1, false, "none")
	if err != nil {
		t.Fatal(err)
	}
	zc, err := resources.GetPod("z", "c")
	if err != nil {
		t.Fatal(err)
	}
	all := generator.NewTestCaseGenerator(true, zc.IP, namespaces, nil, nil).GenerateTestCases()
	compared, wrong := 0, 0
	for _, c := range all {
		state := &connectivity.TestCaseState{Kubernetes: mock, Resources: resources}
		if err := state.ResetClusterState(); err != nil {
			t.Fatal(err)
		}
		for i, step := range c.Steps {
			for _, a := range step.Actions {
				if err := act(state, a); err != nil {
					t.Fatalf("%s, step %d: %v", c.Description, i, err)
				}
			}
			w := worldOf(t, state)
			want := matcher.BuildNetworkPolicies(true, state.Policies)
			jobs := (&probe.JobBuilder{}).GetJobsForProbeConfig(state.Resources, step.Probe)
			for _, job := range jobs.Valid {
				compared++
				allowed := want.IsTrafficAllowed(job.Traffic())
				got := w.Verdict(policy.Peer{Endpoint: job.FromKey, Addr: netip.MustParseAddr(job.FromIP)}, policy.Peer{Endpoint: job.ToKey, Addr: netip.MustParseAddr(job.ToIP)},
					protocols[job.Protocol], uint16(job.ResolvedPort))
				if got.Ingress.Allowed != allowed.Ingress.IsAllowed() || got.Egress.Allowed != allowed.Egress.IsAllowed() || got.Allowed != allowed.IsAllowed() {
					if wrong++; wrong < 10 {
						t.Errorf("%s, step %d: %s to %s, %d/%s (%s): %+v, cyclonus says\n%s", c.Description, i, job.FromKey, job.ToKey,
							job.ResolvedPort, job.Protocol, job.ResolvedPortName, got, allowed.Table())
					}
				}
			}
		}
	}
	t.Logf("%d cases, %d verdicts, %d differ", len(all), compared, wrong)
	if len(all) != cases || compared != verdicts {
		t.Errorf("there are %d cases with %d verdicts, and were %d with %d", len(all), compared, cases, verdicts)
	}
}

var protocols = map[corev1.Protocol]uint8{corev1.ProtocolTCP: policy.TCP, corev1.ProtocolUDP: policy.UDP, corev1.ProtocolSCTP: policy.SCTP}

func act(s *connectivity.TestCaseState, a *generator.Action) error {
	switch {
	case a.CreatePolicy != nil:
		return s.CreatePolicy(a.CreatePolicy.Policy)
	case a.UpdatePolicy != nil:
		return s.UpdatePolicy(a.UpdatePolicy.Policy)
	case a.DeletePolicy != nil:
		return s.DeletePolicy(a.DeletePolicy.Namespace, a.DeletePolicy.Name)
	case a.CreateNamespace != nil:
		return s.CreateNamespace(a.CreateNamespace.Namespace, a.CreateNamespace.Labels)
	case a.SetNamespaceLabels != nil:
		return s.SetNamespaceLabels(a.SetNamespaceLabels.Namespace, a.SetNamespaceLabels.Labels)
	case a.DeleteNamespace != nil:
		return s.DeleteNamespace(a.DeleteNamespace.Namespace)
	case a.ReadNetworkPolicies != nil:
		return s.ReadPolicies(a.ReadNetworkPolicies.Namespaces)
	case a.CreatePod != nil:
		return s.CreatePod(a.CreatePod.Namespace, a.CreatePod.Pod, a.CreatePod.Labels)
	case a.SetPodLabels != nil:
		return s.SetPodLabels(a.SetPodLabels.Namespace, a.SetPodLabels.Pod, a.SetPodLabels.Labels)
	default:
		return s.DeletePod(a.DeletePod.Namespace, a.DeletePod.Pod)
	}
}

// worldOf is cyclonus' state as a world, its policies by way of YAML.
func worldOf(t *testing.T, s *connectivity.TestCaseState) (w policy.World) {
	for name, labels := range s.Resources.Namespaces {
		w.Networks = append(w.Networks, policy.Network{Name: name, Labels: labels})
	}
	for _, pod := range s.Resources.Pods {
		e := policy.Endpoint{
			ID: pod.PodString().String(), Network: pod.Namespace, Local: true, Known: true,
			Addrs: []netip.Addr{netip.MustParseAddr(pod.IP)}, Labels: pod.Labels, Ports: map[string]policy.NamedPort{},
		}
		for _, c := range pod.Containers {
			e.Ports[c.PortName] = policy.NamedPort{Proto: protocols[c.Protocol], Port: uint16(c.Port)}
		}
		w.Endpoints = append(w.Endpoints, e)
	}
	for _, p := range s.Policies {
		w.Policies = append(w.Policies, parse(t, p)...)
	}
	return w
}

// parse reads a policy by way of YAML.
func parse(t *testing.T, p *networkingv1.NetworkPolicy) []policy.Policy {
	p = p.DeepCopy()
	p.APIVersion, p.Kind = "networking.k8s.io/v1", "NetworkPolicy"
	if p.Namespace == "" {
		p.Namespace = "default"
	}
	text, err := yaml.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	list, err := k8s.Parse(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return list
}
