package edit

import (
	"context"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

func TestAllow(t *testing.T) {
	d, r := desk(t)
	_, err := r.Update(func(tx *replica.Tx) error {
		for _, id := range []string{"e1", "e2"} {
			e, _ := cluster.Get[cluster.Endpoint](tx.Snapshot(), id)
			e.Labels = map[string]string{"app": e.Name, "grapevine.io/name": e.Name}
			if err := tx.Put(e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][3]string{
		{"web:80", "db", "behind that"}, {"web", "192.0.2.1:80", "is no container"}, {"web", "nobody:80", "there is no container"}, {"web", "db:0", "is no port"},
		{"web", "red/db:80", "there is no container"},
	} {
		if _, err := d.Allow(context.Background(), api.AllowRequest{From: bad[0], To: bad[1]}); err == nil || !strings.Contains(err.Error(), bad[2]) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if count(t, d) != 0 {
		t.Error("what is wrong has written something")
	}
	done, err := d.Allow(context.Background(), api.AllowRequest{From: "web", To: "db:5432"})
	if err != nil || !strings.Contains(done.Text, "NetworkPolicy blue/allow-web-db-5432 is created") || strings.Contains(done.Text, "there is no") {
		t.Fatalf("%q, %v", done.Text, err)
	}
	for to, want := range map[string]bool{"web db 5432": true, "web db 80": false, "new db 5432": false, "db web 80": true} {
		f := strings.Fields(to)
		port := uint16(80)
		if f[2] == "5432" {
			port = 5432
		}
		e, err := d.Explain(context.Background(), api.ExplainRequest{From: f[0], To: f[1], Port: port})
		if err != nil || e.Allowed != want {
			t.Errorf("%s: %+v, %v", to, e, err)
		}
	}
}

// A policy may come before whom it is about; what may be a slip of the hand is said.
func TestAllowNobody(t *testing.T) {
	d, r := desk(t)
	_, err := r.Update(func(tx *replica.Tx) error {
		for _, id := range []string{"e1", "e2", "e3"} {
			e, _ := cluster.Get[cluster.Endpoint](tx.Snapshot(), id)
			e.Labels, e.Labelled = map[string]string{"grapevine.io/name": e.Name}, true
			if err := tx.Put(e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for from, said := range map[string]bool{"wbe": true, "web": false, "red/web": true, "any": false, "192.0.2.0/24": false, "tier=front": false} {
		done, err := d.Allow(context.Background(), api.AllowRequest{From: from, To: "db:5432"})
		if err != nil || strings.Contains(done.Text, "there is no "+from+" yet: ") != said {
			t.Errorf("from %s: %q, %v", from, done.Text, err)
		}
	}
}
