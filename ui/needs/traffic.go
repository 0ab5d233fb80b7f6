package needs

import "github.com/grapevine-net/grapevine/api"

// Traffic is the newest of who talks to whom.
type Traffic struct {
	Hosts       []api.TrafficHost `json:"hosts"`
	Connections []api.Connection  `json:"connections"`
	Found       int               `json:"found"` // with those that are left out
}

// TrafficOf is what a screen shows of it: of all, or of what nobody answered.
func TrafficOf(t api.Traffic, unanswered bool) Traffic {
	out := Traffic{Hosts: t.Hosts, Connections: []api.Connection{}}
	for _, c := range t.Connections {
		if unanswered && c.State != "unanswered" && c.State != "refused" {
			continue
		}
		if out.Found++; out.Found <= mostRows {
			out.Connections = append(out.Connections, c)
		}
	}
	return out
}
