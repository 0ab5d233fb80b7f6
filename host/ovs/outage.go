package ovs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// outage is what keeps a daemon from coming back.
type outage struct {
	since time.Time // of the first failure in a row
	err   error     // the last one
	up    time.Time // when it came up since; zero: it is down
}

// Patience with daemons: most come back at once, and one that is up for so long is well.
const (
	downPatience = 2 * time.Second
	upPatience   = time.Second
)

// lasts says whether there is something to tell of.
func (o outage) lasts(now time.Time) bool {
	return o.err != nil && now.Sub(o.since) >= downPatience && (o.up.IsZero() || now.Sub(o.up) < upPatience)
}

// note takes down that a daemon is up (nil), or why it is down.
func (e *Embedded) note(d daemon, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	o, known := e.down[d.name]
	switch {
	case err == nil && !known:
		return
	case err == nil:
		o.up = time.Now()
	default:
		if !known {
			o.since = time.Now()
		}
		o.err, o.up = err, time.Time{}
	}
	if e.down == nil {
		e.down = map[string]outage{}
	}
	e.down[d.name] = o
}

func (e *Embedded) forgetDown(d daemon) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.down, d.name)
}

// Trouble says which daemons have been down, or out of reach, for seconds, and why they stay so. That
// the host's own Open vSwitch has the datapath, Rival says.
func (e *Embedded) Trouble() (list []error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now, rival := time.Now(), (*RivalError)(nil)
	for _, name := range slices.Sorted(maps.Keys(e.down)) {
		if o := e.down[name]; o.lasts(now) && !errors.As(o.err, &rival) {
			list = append(list, fmt.Errorf("the agent's %s %w", name, o.err))
		}
	}
	return list
}

// lastWords adds to the error of a daemon that has ended what it said last.
func (d daemon) lastWords(err error) error {
	f, failed := os.Open(filepath.Join(d.runDir, d.name+".log"))
	if failed != nil {
		return err // there is nothing to add
	}
	defer f.Close()
	_, _ = f.Seek(-512, io.SeekEnd) // a shorter one is read whole
	text, _ := io.ReadAll(f)
	if lines := bytes.Split(bytes.TrimSpace(text), []byte("\n")); len(lines[len(lines)-1]) > 0 {
		return fmt.Errorf("%w; its log ends with %q", err, lines[len(lines)-1])
	}
	return err
}

// KillCommand ends ovs-vswitchd or ovsdb-server, of a host's shell, which may see other processes than the agent
// does; it ends no other Open vSwitch's. (Without the brackets it would end a sudo before it, too.)
func (e *Embedded) KillCommand(daemon string) string {
	_, vswitchd := e.daemons()
	return fmt.Sprintf("pkill -9 -f 'pidfile=%s/%s[.]pid'", filepath.Dir(vswitchd.pidFile()), daemon)
}
