package watch

import (
	"fmt"
	"slices"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/diagnose/paths"
)

// insideVersion is that of the first hellos that go through what encrypts. Who says older ones is not judged by them.
const insideVersion = 3

// Inside knows whether what encrypted networks send gets through between this host and the others, where all else goes
// beside that: it takes another UDP port, and WireGuard. Hellos finds that out.
type Inside struct {
	Host
	Works func() bool // whether this host's own device is as it should be; if not, that is what is to be said
	latest[paths.Verdict]
}

// judges reports whether a host is to be heard through what encrypts. Where both encrypt all, the hellos of all packets
// go there.
func (p *Inside) judges(me, n cluster.Node) bool {
	seals := func(n cluster.Node) bool { return n.SecureKey() != nil && !(me.Encrypts() && n.Encrypts()) }
	return n.Hellos >= insideVersion && seals(me) && seals(n) && p.Snapshot().Encrypted() && p.Works()
}

// Problems says which ways carry nothing of encrypted networks, for people; nodes are all hosts.
func (p *Inside) Problems(nodes []api.Node) []api.Problem {
	return insideProblems(p.now(), nodes, p.Settings.WireGuardPort, time.Now())
}

// Lost says which way to and from a host carries nothing of encrypted networks; "": none is known.
func (p *Inside) Lost(host string) string {
	for _, v := range p.now() {
		if v.Host == host && v.Bad() {
			return pathOf(v)
		}
	}
	return ""
}

// insideProblems is pure. Hosts of which the same is to be said share a problem.
func insideProblems(verdicts []paths.Verdict, nodes []api.Node, port uint16, now time.Time) (list []api.Problem) {
	names := map[string]string{}
	for _, n := range nodes {
		if n.Alive && !n.Doubtful && !n.Self {
			names[n.ID] = n.Name
		}
	}
	for _, way := range []struct {
		what string
		lost func(paths.Verdict) bool
	}{
		{"nothing that encrypted networks' containers of %s send arrives here (WireGuard), though %s", func(v paths.Verdict) bool { return v.In == paths.Nothing }},
		{"nothing that encrypted networks' containers send from here arrives at %s (WireGuard), though %s", func(v paths.Verdict) bool { return v.In != paths.Nothing && v.Out == paths.Nothing }},
	} {
		var hosts []string
		var since time.Time
		judged := 0
		for _, v := range verdicts {
			name, alive := names[v.Host]
			if !alive {
				continue
			}
			if judged++; !way.lost(v) {
				continue
			}
			if hosts = append(hosts, name); len(hosts) == 1 || v.Since.Before(since) {
				since = v.Since
			}
		}
		if hosts == nil {
			continue
		}
		slices.Sort(hosts)
		answers := "its agent answers"
		if len(hosts) > 1 {
			answers = "their agents answer"
		}
		list = append(list, api.Problem{
			Code: api.EncryptedLost,
			What: fmt.Sprintf(way.what, words.SomeHosts(hosts, judged), answers) + words.Since(since, now),
			Do: fmt.Sprintf("let UDP port %d pass between the hosts, both ways: a firewall of one of them, or of the network between (a security group), drops it; "+
				"or the process wireguard-device of one of them hangs: /run/grapevine/wireguard.log says more", port),
		})
	}
	return list
}
