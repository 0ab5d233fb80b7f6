package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/grapevine-net/grapevine/gossip"
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
	Records []Record  `cbor:"5,keyasint,omitempty"`
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

// callPatience bounds a question to another host.
const callPatience = 5 * time.Second

// there asks another host.
func (d *Desk) there(ctx context.Context, id string, most int) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	body, err := cbor.Marshal(question{Most: most})
	if err != nil {
		return a, err
	}
	reply, err := d.cfg.Call(ctx, id, method, body)
	if there, ok := errors.AsType[*gossip.RemoteError](err); ok {
		if strings.HasPrefix(there.Text, "unknown method") {
			return a, errors.New("its agent is older, and does not count")
		}
		return a, errors.New(there.Text)
	}
	if err != nil {
		return a, unreached(err)
	}
	if err := cbor.Unmarshal(reply, &a); err != nil {
		return a, fmt.Errorf("read its answer: %w", err)
	}
	a.newest(most)
	return a, nil
}

// unreached says why another host was not asked, for people: it is one of many, in a line.
func unreached(err error) error {
	why := err
	for next := err; next != nil; next = errors.Unwrap(next) {
		why = next
	}
	if timeout, ok := errors.AsType[net.Error](err); errors.Is(err, context.DeadlineExceeded) || ok && timeout.Timeout() {
		why = fmt.Errorf("no answer within %v", callPatience)
	}
	return fmt.Errorf("its agent could not be asked (%w): `grapevine status` says whether it is there, `grapevine doctor` what keeps it away", why)
}
