package overlay

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/ovs/ovstest"
)

// TestMoreRulesThanASwitchTakes: policies that come to more rules than the switch takes
// cut off those whom they select, which is said, and nobody else; with fewer all is well.
func TestMoreRulesThanASwitchTakes(t *testing.T) {
	h := newHost(t)
	container := func(letter byte, address, app string) cluster.Endpoint {
		e := labelled(h.container(letter, "blue", address, "10.128.0.1"), "app", app)
		h.put(e)
		return e
	}
	db, web := container('a', "10.128.0.7", "db"), container('b', "10.128.0.8", "web")
	container('c', "10.128.0.9", "cache")
	h.reaches("b", "10.128.0.7")

	var policies []cluster.Body
	for i := range 4001 {
		policies = append(policies, policyOf(fmt.Sprint("db", i), fmt.Sprintf("{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: %d}]}]}", i+1)))
	}
	h.put(policies...)
	says := func() string { return fmt.Sprint(errors.Join(h.Problems()...)) }
	ovstest.Eventually(t, 3*time.Minute, func() error {
		if said := says(); !strings.Contains(said, db.ID[:12]) || !strings.Contains(said, "more than a switch takes") {
			return fmt.Errorf("nothing of it among the problems: %.300s", said)
		}
		return nil
	})
	if strings.Contains(says(), web.ID[:12]) {
		t.Errorf("of one that no policy selects: %.300s", says())
	}
	h.reaches("b", "10.128.0.9")
	if err := ping("b", "10.128.0.7"); err == nil {
		t.Error("who has more rules than can be is reached")
	}
	container('d', "10.128.0.10", "cache") // one that comes meanwhile
	h.reaches("c", "10.128.0.10")

	h.end(me, policies[0].Key())
	ovstest.Eventually(t, 3*time.Minute, func() error {
		if said := says(); said != "<nil>" {
			return fmt.Errorf("there are fewer now, and still: %.300s", said)
		}
		return nil
	})
}
