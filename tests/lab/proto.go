package lab

import (
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"
)

// operation is what a box is asked to do. One connection carries one request and
// the replies to it, gob encoded; the last reply has Done set. Closing the
// connection ends what the request started, except for opStart.
type operation string

const (
	opRun    operation = "run"    // run a command, stream its output
	opStart  operation = "start"  // start a daemon by name
	opSignal operation = "signal" // signal a daemon, wait for its end
	opGet    operation = "get"    // GET from a daemon until it answers or ends
	opInside operation = "inside" // do what a program of a role does, see inside.go
	opAsk    operation = "ask"    // GET from a daemon, once: Exit is the status, and Stdout what it answers
)

type request struct {
	Op    operation
	Name  string // of the daemon, or of the role
	PID   int    // whose network namespace it is to be in; 0: the box's own
	Argv  []string
	Env   []string // added to the box's own
	Stdin []byte
	Log   string         // file that gets a daemon's output
	Sig   syscall.Signal // 0: only ask whether it runs
	Group bool           // signal the daemon's process group
	Wait  time.Duration
	Unix  string // socket to send the GET to
	Path  string // of the GET; "": only connect
}

type reply struct {
	Stdout, Stderr []byte
	Done           bool
	Exit           int    // of a command; -1: killed by a signal
	Running        bool   // of a daemon
	End            string // how a daemon ended that does not run: "signal: killed"
	Err            string // the request itself failed
}

// ExitError says that a command ran in a box and failed.
type ExitError struct {
	Argv   []string
	Code   int // -1: killed by a signal
	Stdout string
	Stderr string
}

func (e *ExitError) Error() string {
	said := strings.TrimSpace(e.Stderr)
	if said == "" {
		said = strings.TrimSpace(e.Stdout)
	}
	return fmt.Sprintf("%s: exit status %d: %s", strings.Join(e.Argv, " "), e.Code, said)
}

// errGone is what happens to a request whose host ends, or has no answer for minutes.
var errGone = errors.New("the host went away")

// roundTrip sends one request and collects its output until it is done.
func roundTrip(conn net.Conn, req request) (last reply, stdout, stderr string, err error) {
	if err := gob.NewEncoder(conn).Encode(req); err != nil {
		return reply{}, "", "", fmt.Errorf("send the request: %w", err)
	}
	var out, errOut strings.Builder
	for dec := gob.NewDecoder(conn); ; {
		var r reply
		if err := dec.Decode(&r); err != nil {
			return reply{}, out.String(), errOut.String(), fmt.Errorf("%w: %w", errGone, err)
		}
		out.Write(r.Stdout)
		errOut.Write(r.Stderr)
		if !r.Done {
			continue
		}
		if r.Err != "" {
			return r, out.String(), errOut.String(), errors.New(r.Err)
		}
		return r, out.String(), errOut.String(), nil
	}
}
