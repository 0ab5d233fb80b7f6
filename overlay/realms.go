package overlay

import (
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// realms are the realms of networks that are not by themselves, by their names. A realm's number is the lowest VNID of
// the networks here that are of it: no network outside has that one.
func realms(networks map[string]cluster.Network, said cluster.Realms) map[string]pipeline.Realm {
	lowest := map[string]uint32{}
	for name, r := range said {
		n, there := networks[name]
		if was, some := lowest[r.With]; there && r.With != "" && (!some || n.VNID < was) {
			lowest[r.With] = n.VNID
		}
	}
	out := map[string]pipeline.Realm{}
	for name, r := range said {
		switch _, there := networks[name]; {
		case !there:
		case r.Global:
			out[name] = pipeline.Everywhere
		default:
			out[name] = pipeline.Realm(lowest[r.With])
		}
	}
	return out
}
