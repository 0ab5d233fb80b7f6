package agent

import "github.com/grapevine-net/grapevine/realm"

// realms is where people say here which networks are one.
func realms(a *Agent) realm.Desk {
	return realm.Desk{Name: a.cfg.Name, Replica: a.replica, Enforced: a.plane.Overlay().Wait}
}
