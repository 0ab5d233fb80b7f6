package agent

import "github.com/grapevine-net/grapevine/multicast"

// newGroups makes what tells the others which multicast groups this host's containers are members of. It hears of containers first, and
// naming after it.
func newGroups(a *Agent) *multicast.Room {
	return multicast.New(multicast.Config{Self: a.self(), Replica: a.replica, Next: a.naming.services, Log: a.log.With("room", "multicast")})
}
