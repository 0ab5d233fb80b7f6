// Package ask asks other hosts' agents what these have counted.
package ask

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/grapevine-net/grapevine/gossip"
)

// Call asks a host, by its ID (gossip.Gossip).
type Call func(ctx context.Context, node, method string, body []byte) ([]byte, error)

// patience bounds a question to another host.
const patience = 5 * time.Second

// Host asks another host, which answers with an A. The error is for people: it is one of many, in a line.
func Host[A any](ctx context.Context, call Call, id, method string, question any) (a A, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body, err := cbor.Marshal(question)
	if err != nil {
		return a, err
	}
	reply, err := call(ctx, id, method, body)
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
		var none A
		return none, fmt.Errorf("read its answer: %w", err)
	}
	return a, nil
}

// unreached says why another host was not asked.
func unreached(err error) error {
	why := err
	for next := err; next != nil; next = errors.Unwrap(next) {
		why = next
	}
	if timeout, ok := errors.AsType[net.Error](err); errors.Is(err, context.DeadlineExceeded) || ok && timeout.Timeout() {
		why = fmt.Errorf("no answer within %v", patience)
	}
	return fmt.Errorf("its agent could not be asked (%w): `grapevine status` says whether it is there, `grapevine doctor` what keeps it away", why)
}

// atOnce is how many hosts are asked at the same time.
const atOnce = 64

// Each does something for each of so many hosts, several at the same time, and returns when it is done.
func Each(hosts int, do func(i int)) {
	var asking sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i := range hosts {
		asking.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			do(i)
		})
	}
	asking.Wait()
}
