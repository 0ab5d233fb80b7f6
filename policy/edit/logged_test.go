package edit

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/view"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// TestLogged: of connections that were seen those are logged of which a policy that decided wants it, with the rule that did.
func TestLogged(t *testing.T) {
	d, r := desk(t)
	if _, err := r.Update(func(tx *replica.Tx) error {
		return tx.Put(cluster.Subnet{Prefix: netip.MustParsePrefix("10.128.0.0/22"), Network: "blue", Gateway: netip.MustParseAddr("10.128.0.1"), Home: self})
	}); err != nil {
		t.Fatal(err)
	}
	end := func(addr string, port uint16) api.TrafficEnd {
		e := api.TrafficEnd{Addr: netip.MustParseAddr(addr), Port: port}
		if strings.HasPrefix(addr, "10.") && addr != "10.128.0.1" {
			e.Host = r.Snapshot().HostName(self)
		}
		return e
	}
	seen := []api.Connection{
		{From: end("10.128.0.2", 40000), To: end("10.128.0.3", 5432), Proto: "tcp"},   // web to db: allowed
		{From: end("10.128.0.2", 40000), To: end("10.128.0.3", 80), Proto: "tcp"},     // another port
		{From: end("10.128.0.4", 40000), To: end("10.128.0.3", 5432), Proto: "tcp"},   // another container, of unknown labels
		{From: end("10.128.0.4", 0), To: end("10.128.0.3", 0), Proto: "icmp"},         // a ping
		{From: end("10.128.0.3", 40000), To: end("10.128.0.2", 80), Proto: "tcp"},     // nothing is said of web
		{From: end("10.128.0.1", 40000), To: end("10.128.0.3", 80), Proto: "tcp"},     // its own host
		{From: end("198.51.100.7", 40000), To: end("10.128.0.3", 5432), Proto: "tcp"}, // outside
		{From: end("10.128.0.2", 0), To: end("10.128.0.3", 0), Proto: "89"},           // no rule knows it
	}
	far := api.Connection{From: end("10.128.0.4", 40001), To: end("10.128.0.3", 5432), Proto: "tcp"} // the other end of it: its own host logs it
	far.From.Host = "elsewhere"
	seen = append(seen, far)
	logged := func() (list []string) {
		for _, c := range d.Logged(seen) {
			list = append(list, fmt.Sprintf("%s %d/%s %v %s", c.From.Addr, c.To.Port, c.Proto, c.Allowed, c.RuleNames()))
		}
		return list
	}
	annotated := func(log string) string {
		return strings.Replace(db, "namespace: blue", "namespace: blue, annotations: {grapevine.io/log: "+log+"}", 1)
	}
	const denies = "blue/db ingress (Deny)"
	denied := []string{"10.128.0.2 80/tcp false " + denies, "10.128.0.4 5432/tcp false " + denies, "10.128.0.4 0/icmp false " + denies, "198.51.100.7 5432/tcp false " + denies}
	for text, want := range map[string][]string{
		db:                  nil,
		annotated("denied"): denied,
		annotated("all"):    append([]string{"10.128.0.2 5432/tcp true blue/db ingress[0] (Accept)"}, denied...),
	} {
		apply(t, d, text)
		if got := logged(); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s\ngot:  %q\nwant: %q", text, got, want)
		}
		if view.Logs(r.Snapshot()) != (want != nil) {
			t.Errorf("%s: whether there is anything to log is not known", text)
		}
	}
}
