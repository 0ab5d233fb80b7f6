package traffic

import (
	"context"
	"slices"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/observe/ask"
)

const method = "traffic.list"

// maxRecords bounds an answer between hosts, maxAll what all of them answer together, and leastRecords what each may say.
const (
	maxRecords   = 3000
	maxAll       = 60_000
	leastRecords = 60
)

// shareOf is how many records each of so many hosts is asked for: the newest. Nobody looks at more of a thousand.
func shareOf(hosts int) int { return max(leastRecords, min(maxRecords, maxAll/max(1, hosts))) }

// question is what a host asks of another one. Agents before this one ignore it.
type question struct {
	Most    int      `cbor:"1,keyasint,omitempty"`
	Ends    []string `cbor:"2,keyasint,omitempty"`
	Network string   `cbor:"3,keyasint,omitempty"`
	Port    uint16   `cbor:"4,keyasint,omitempty"`
}

// answer is what a host says to another one.
type answer struct {
	Since   time.Time `cbor:"1,keyasint"`
	Lost    uint64    `cbor:"2,keyasint,omitempty"`
	Left    int       `cbor:"3,keyasint,omitempty"`
	Error   string    `cbor:"4,keyasint,omitempty"`
	Records []*Record `cbor:"5,keyasint,omitempty"`
	// At is when it looked. Agents before this one do not say it.
	At time.Time `cbor:"6,keyasint,omitzero"`
}

// Methods answer other hosts.
func (d *Desk) Methods() map[string]func(ctx context.Context, from string, body []byte) ([]byte, error) {
	return map[string]func(context.Context, string, []byte) ([]byte, error){
		method: func(ctx context.Context, _ string, body []byte) ([]byte, error) {
			var q question
			if cbor.Unmarshal(body, &q) != nil || q.Most <= 0 { // of an agent before this one
				q.Most = maxRecords
			}
			a, err := d.here(ctx)
			if err != nil {
				a.Error = err.Error()
			}
			a.only(api.TrafficOf{Ends: q.Ends, Network: q.Network, Port: q.Port})
			a.newest(min(q.Most, maxRecords))
			return cbor.Marshal(a)
		},
	}
}

// newest leaves the oldest records out.
func (a *answer) newest(most int) {
	if n := len(a.Records) - most; n > 0 {
		a.Left, a.Records = a.Left+n, a.Records[:most]
	}
}

// only leaves out what is not wanted.
func (a *answer) only(of api.TrafficOf) {
	if len(of.Ends) == 0 && of.Network == "" && of.Port == 0 {
		return
	}
	a.Records = slices.DeleteFunc(a.Records, func(r *Record) bool {
		return !of.Has(end(r.Half.Src, r.Half.SrcPort, r.Src), end(r.Half.Dst, r.Half.DstPort, r.Dst))
	})
}

// there asks another host.
func (d *Desk) there(ctx context.Context, id string, of api.TrafficOf, most int) (answer, error) {
	a, err := ask.Host[answer](ctx, d.cfg.Call, id, method, question{most, of.Ends, of.Network, of.Port})
	a.Records = slices.DeleteFunc(a.Records, func(r *Record) bool { return r == nil }) // who says nothing in place of one
	a.only(of)                                                                         // an agent before this one says all
	a.newest(most)
	return a, err
}

// many are so many hosts that not all are asked where few can have counted what is wanted.
const many = 64

// canKnow is pure: which hosts can have counted connections between two ends, if both are containers: theirs. nil: any host can.
func canKnow(snap *cluster.Snapshot, ends []string) map[cluster.NodeID]bool {
	if len(ends) < 2 {
		return nil
	}
	hosts, found := map[cluster.NodeID]bool{}, map[string]bool{}
	for e := range cluster.All[cluster.Endpoint](snap) {
		for _, a := range e.Addrs {
			for _, name := range ends {
				if end(a, 0, Who{Name: e.Name, Network: e.Network}).Is(name) {
					hosts[e.Host], found[name] = true, true
				}
			}
		}
	}
	if len(found) < len(ends) && ends[0] != ends[1] || len(found) == 0 {
		return nil
	}
	return hosts
}
