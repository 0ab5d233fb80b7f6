package edit

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
	"github.com/grapevine-net/grapevine/service/expose"
)

// TestSick: a service is a problem, on the hosts that it concerns, if all its containers on hosts that answer are paused or not healthy. While one
// just starts, or is being stopped, it is a remark. So it is of ports that labels ask for.
func TestSick(t *testing.T) {
	d, r := desk(t)
	d.Self = self
	if _, err := d.Create(context.Background(), api.CreateServiceRequest{Network: "blue", Name: "web", Ports: []string{"80"}}); err != nil {
		t.Fatal(err)
	}
	put := func(bodies ...cluster.Body) {
		t.Helper()
		for _, b := range bodies {
			if _, err := r.Update(func(tx *replica.Tx) error { return tx.Put(b) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	at := func(id, network string, n int, unready, sick bool) cluster.Endpoint {
		return cluster.Endpoint{ID: id, Network: network, Host: self, Name: "web", Addrs: []netip.Addr{netip.MustParseAddr(fmt.Sprint("10.1.0.", n))}, Unready: unready, Sick: sick}
	}
	is := func(what, problem, note string) {
		t.Helper()
		var problems []string
		for _, p := range d.Problems(r.Snapshot()) {
			problems = append(problems, string(p.Code)+": "+p.What)
		}
		if got := strings.Join(problems, "; "); got != problem {
			t.Errorf("%s: problems %q, want %q", what, got, problem)
		}
		if got := strings.Join(d.Notes(), "; "); got != note {
			t.Errorf("%s: notes %q, want %q", what, got, note)
		}
	}
	const all = "(web on host host1, web on host host1): connections are led there all the same"
	const sick, remark = "service blue/web: its containers are all paused or not healthy " + all + ", and may wait for ever", "service blue/web: its containers all start, or are being stopped, paused or not healthy " + all
	is("well", "", "")
	put(at("e1", "blue", 3, true, true))
	is("alone, and sick", "service-sick: "+strings.Replace(sick, "web on host host1, ", "", 1), "")
	put(at("e2", "blue", 4, true, false))
	is("and one starts", "", remark)
	put(at("e2", "blue", 4, true, true))
	is("both are sick", "service-sick: "+sick, "")
	put(at("e2", "blue", 4, false, false))
	is("one is well", "", "")
	d.Hosts = func(cluster.NodeID) cluster.Standing { return cluster.Gone }
	put(at("e2", "blue", 4, true, true))
	is("no host of them answers, which is named by itself", "", "service blue/web: no host of its containers answers: connections are led there all the same")
	d.Hosts = nil
	d.Self = "00000000000000bb"
	is("on a host that it does not concern", "", "")
	d.Heeds = func(x expose.Exposure) bool { return true }
	is("and is not exposed there", "", "")
	s, _ := cluster.Get[cluster.Service](r.Snapshot(), "blue/web")
	s.Exposed = []cluster.ServicePort{{Proto: "tcp", Port: 443, Target: 80}}
	put(s)
	is("on a host that answers a port for it", "service-sick: "+sick, "")
	label := at("e3", "red", 5, true, false)
	label.Name, label.Labels, label.Labelled = "shop", map[string]string{expose.Label: "8080:80"}, true
	put(at("e1", "blue", 3, false, false), label)
	const port = "port 8080/tcp for the label grapevine.expose on network red: its containers "
	is("a label's port whose container starts", "", port+"all start, or are being stopped, paused or not healthy (shop on host host1): connections are led there all the same")
	label.Sick = true
	put(label)
	is("and is sick", "service-sick: "+port+"are all paused or not healthy (shop on host host1): connections are led there all the same, and may wait for ever", "")
}
