package membership

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

var (
	errUnproven  = errors.New("its state is from a backup, and not every host has said yet that nothing is missing in it")
	errElsewhere = errors.New("it has another address than before, and is not sure yet that it is not a copy of a host that is still there")
)

// Quarantine keeps a host from handing out anything while it may be another one than it
// takes itself for.
type Quarantine struct {
	*host
	unproven  atomic.Bool // restored from a backup, and not sure yet that nothing is missing
	elsewhere atomic.Bool // not where its Node record says, and not sure yet that nobody else is there
}

// Quarantined says why this host must hand out nothing at present: what it takes for its
// own may be another one's.
func (m *Quarantine) Quarantined() error {
	if err := m.replica.Trouble(); err != nil {
		return err
	}
	if at, ok := m.gossip.Clone(); ok {
		return fmt.Errorf("a host at %s has this host's ID %s", at, m.id.Node)
	}
	return m.unsure()
}

// unsure says why this host may not be the one that its state is of, nil if it is.
func (m *Quarantine) unsure() error {
	switch {
	case m.unproven.Load():
		return errUnproven
	case m.elsewhere.Load():
		return errElsewhere
	}
	return nil
}

// gate says why this host must write no records: what it writes would have the
// versions of writes that it may have forgotten.
func (m *Quarantine) gate() error {
	if err := m.unsure(); err != nil {
		return fmt.Errorf("%w: wait until `grapevine status` says that all is well", err)
	}
	return nil
}

// WaitProven returns when this host may write, and false if ctx ends first.
func (m *Quarantine) WaitProven(ctx context.Context) bool {
	for m.unsure() != nil {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(100 * time.Millisecond):
		}
	}
	return true
}
