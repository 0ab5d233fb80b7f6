package agent

import (
	"github.com/grapevine-net/grapevine/diagnose/watch"
)

// watches are what the agent goes on finding out, for status and doctor.
type watches struct {
	helloRun uint64 // there from the start
	contacts *watch.Contacts
	hellos   *watch.Hellos
	firewall *watch.Firewall
	engine   *watch.Engine
	silence  watch.Silence
	moves    watch.Moves
	probes   watch.Probes
}

// openWatches makes them; the parts that they look at are open.
func (a *Agent) openWatches() {
	h := watch.Host{
		Self: a.self(), Settings: a.cfg, Underlay: a.underlay, Started: a.started, Gossip: a.gossip,
		Snapshot: a.replica.Snapshot, Nodes: a.member.Nodes, CIDRs: a.member.CIDRs, Log: a.log,
	}
	a.contacts, a.hellos = &watch.Contacts{Host: h}, &watch.Hellos{Host: h, RunID: a.helloRun, Leaving: a.member.Leaver.Leaving, Inside: watch.Inside{Host: h, Works: a.secure.Works}}
	a.firewall = &watch.Firewall{Host: h, Hellos: a.hellos}
	if !a.cfg.Edge() {
		a.engine = &watch.Engine{Ping: a.docker.Ping}
	}
	a.silence = watch.Silence{Host: h, Contacts: a.contacts, Advice: a.member.Forgetter.ForgetAdvice}
	a.moves = watch.Moves{Host: h, Depart: a.gossip.Depart}
	a.probes = watch.Probes{Host: h, Prober: a.prober, InnerMTU: a.plane.InnerMTU}
}
