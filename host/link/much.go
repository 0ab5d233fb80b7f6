package link

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// muchInside is how many things of a kind are read in the network namespace of a container, which may have made any number.
var muchInside = 4096 // a test has less

var errMuch = errors.New("the container has made more than are read")

// fewQdiscs fails if there are too many qdiscs to be listed in the namespace of that file. They are counted as they come, and none is
// kept: the kernel lists those of all interfaces for one.
func fewQdiscs(sandbox string) error {
	f, err := os.Open(sandbox)
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := nl.GetNetlinkSocketAt(netns.NsHandle(f.Fd()), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("enter the sandbox: %w", err)
	}
	defer s.Close()
	if err := s.SetReceiveTimeout(&unix.Timeval{Sec: 5}); err != nil {
		return err
	}
	ask, n := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_DUMP), 0
	ask.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}
	ask.AddData(&nl.TcMsg{})
	err = ask.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC, func([]byte) bool { n++; return n <= muchInside })
	switch {
	case n > muchInside:
		return fmt.Errorf("queues (tc qdisc show): %w", errMuch)
	case err != nil && !errors.Is(err, nl.ErrDumpInterrupted):
		return fmt.Errorf("count the queues in the sandbox: %w", err)
	}
	return nil
}
