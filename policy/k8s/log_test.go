package k8s

import (
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/policy"
)

// TestLogAnnotation: it is read of each kind, written again, and a slip of the hand is an error; of a stored policy what is
// not understood is not logged.
func TestLogAnnotation(t *testing.T) {
	kinds := []string{
		"networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: db, namespace: blue, annotations: {X}}\nspec: {podSelector: {}}\n",
		"policy.networking.k8s.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {name: db, annotations: {X}}\nspec: {tier: Admin, priority: 1, subject: {namespaces: {}}}\n",
		"network.openshift.io/v1\nkind: EgressNetworkPolicy\nmetadata: {name: db, namespace: blue, annotations: {X}}\nspec: {egress: [{type: Deny, to: {cidrSelector: 192.0.2.0/24}}]}\n",
	}
	for _, text := range kinds {
		of := func(annotation string) []byte {
			return []byte("apiVersion: " + strings.Replace(text, "X", annotation, 1))
		}
		for annotation, want := range map[string]policy.Log{"grapevine.io/log: denied": policy.LogDenied, "grapevine.io/log: all": policy.LogAll, "other/log: all": 0, "": 0} {
			list, err := Parse(of(annotation))
			if err != nil || len(list) != 1 || list[0].Log != want {
				t.Fatalf("%s: %+v, %v", of(annotation), list, err)
			}
			again, err := Stored(Format(list[0]))
			if err != nil || again.Log != want {
				t.Errorf("written again: %s, %v", Format(list[0]), err)
			}
		}
		for annotation, want := range map[string]bool{"grapevine.io/mode: try": true, "grapevine.io/mode: enforce": false, "grapevine.io/log: all": false, "": false} {
			list, err := Parse(of(annotation))
			if err != nil || len(list) != 1 || list[0].Try != want {
				t.Fatalf("%s: %+v, %v", of(annotation), list, err)
			}
			again, err := Stored(Format(list[0]))
			if err != nil || again.Try != want || again.Log != list[0].Log {
				t.Errorf("written again: %s, %v", Format(list[0]), err)
			}
		}
		if _, err := Parse([]byte(strings.Join([]string{string(of("grapevine.io/mode: try")), string(of(""))}, "---\n"))); err != nil {
			t.Errorf("one that is tried beside one that is enforced: %v", err)
		}
		for annotation, want := range map[string]string{"grapevine.io/mode: tri": "enforce, try", "grapevine.io/log: al": "denied", "grapevine.io/logs: all": "is none of grapevine's"} {
			if _, err := Parse(of(annotation)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", annotation, err)
			}
			if p, err := Stored(of(annotation)); err != nil || p.Log != 0 || p.Name != "db" {
				t.Errorf("stored with %s: %+v, %v", annotation, p, err)
			}
		}
	}
}
