package ovs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// A RivalError says that another Open vSwitch of this host has the datapath. A network
// namespace has one of each kind, and that is one ovs-vswitchd's: of two, each removes the
// ports of the other from the kernel's, and the second one cannot make the one in
// userspace, whose tap is ovs-netdev.
type RivalError struct {
	Datapath Datapath
	Bridges  []string // of the other one, in this datapath
}

func (e *RivalError) Error() string {
	return fmt.Sprintf("this host's own Open vSwitch has the %s datapath, for %s; the agent's cannot have it too", e.Datapath, strings.Join(e.Bridges, ", "))
}

// bridgesOf lists an instance's bridges in the datapath. No database is no bridge.
func (i *Instance) bridgesOf(ctx context.Context, datapath Datapath) (names []string, err error) {
	if _, err := os.Stat(i.DB); errors.Is(err, os.ErrNotExist) {
		return nil, nil // as on most hosts, each second: to connect to nothing costs ten times that
	}
	rows, err := i.selects(ctx, query{"Bridge", []string{"name", "datapath_type"}})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, r := range rows[0] {
		if kind := r.text("datapath_type"); kind == datapath.dpType() || kind == "" && datapath == Kernel {
			names = append(names, r.text("name"))
		}
	}
	return names, nil
}

// Rival is a [RivalError] if the host's own Open vSwitch has the datapath, nil if not, and
// another error if that is not to be known.
func (e *Embedded) Rival(ctx context.Context) error {
	if e.Host == nil {
		return nil
	}
	names, err := e.Host.bridgesOf(ctx, e.Datapath)
	if err != nil {
		return fmt.Errorf("look at the host's own Open vSwitch: %w", err)
	}
	if len(names) == 0 {
		return nil
	}
	return &RivalError{Datapath: e.Datapath, Bridges: names}
}
