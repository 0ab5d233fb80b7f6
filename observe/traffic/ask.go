package traffic

import (
	"context"
	"slices"
	"time"

	"github.com/fxamacker/cbor/v2"

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
	Most int `cbor:"1,keyasint,omitempty"`
}

// answer is what a host says to another one.
type answer struct {
	Since   time.Time `cbor:"1,keyasint"`
	Lost    uint64    `cbor:"2,keyasint,omitempty"`
	Left    int       `cbor:"3,keyasint,omitempty"`
	Error   string    `cbor:"4,keyasint,omitempty"`
	Records []*Record `cbor:"5,keyasint,omitempty"`
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

// there asks another host.
func (d *Desk) there(ctx context.Context, id string, most int) (answer, error) {
	a, err := ask.Host[answer](ctx, d.cfg.Call, id, method, question{Most: most})
	a.Records = slices.DeleteFunc(a.Records, func(r *Record) bool { return r == nil }) // who says nothing in place of one
	a.newest(most)
	return a, err
}
