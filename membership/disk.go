package membership

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/host/store"
	"github.com/grapevine-net/grapevine/pulse"
)

// writePatience is how long a disk may take for what the agent writes to it: a slow card is no problem.
const writePatience = 3 * time.Second

// Disk is the disk under this host's state.
type Disk struct {
	*host
	room atomic.Pointer[error] // see watch
}

// lookAtDisk is how often it is looked whether the disk has room.
const lookAtDisk = 3 * time.Second

// watch keeps in mind whether the disk has room, which only a write would tell otherwise. Who
// asks for the status does not wait for a disk that hangs.
func (m *Disk) watch(ctx context.Context) error {
	for {
		err := store.Room(m.cfg.State)
		m.room.Store(&err)
		select {
		case <-ctx.Done():
			return nil
		case <-pulse.After(lookAtDisk):
		}
	}
}

// Problems are those of the disk under this host's state.
func (m *Disk) Problems() (list []api.Problem) {
	add := func(code api.Code, do, format string, args ...any) {
		list = append(list, api.Problem{Code: code, What: fmt.Sprintf(format, args...), Do: do})
	}
	const unwritten = "until then this host makes no new networks or containers, and does not learn what others make"
	if err := m.replica.Unwritten(); err != nil {
		add(api.DiskFails, unwritten, "this host's state cannot be written: %v", err)
	} else if room := m.room.Load(); room != nil && *room != nil {
		code, do := api.DiskFull, unwritten
		if tight := (*store.RoomError)(nil); errors.As(*room, &tight) && tight.Nearly {
			code, do = api.DiskNearlyFull, "once it is full, this host makes no new networks or containers, and does not learn what others make"
		}
		add(code, do, "%v", *room)
	}
	if since := m.db.Writing(); since > writePatience {
		add(api.DiskHangs, "look at what the kernel says of the disk (dmesg); "+unwritten, "this host's disk has not taken a write to %s for %v", m.db.Path(), since.Round(time.Second))
	}
	return list
}
