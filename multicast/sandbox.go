package multicast

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/grapevine-net/grapevine/host/link"
	"github.com/grapevine-net/grapevine/host/netns"
)

// maxText is how much is read of what a kernel says of groups, bytes: some thousand groups. Who has more is looked at less often.
const maxText = 64 * 1024

const (
	beat = 300 * time.Millisecond // how often a container is looked at
	rest = 5 * time.Second        // one that is a member of more than is read
)

// sandbox is what tells the groups of an endpoint. Its files belong to the sandbox's network namespace, wherever they are read.
type sandbox struct {
	endpoint  string
	key       string // the file of the namespace
	igmp, mld *os.File
	due       time.Time
	index     int // of the endpoint's interface there, which is asked for anew once in some looks
	looks     int
}

// looksByIndex is how many looks, five seconds' or so, go by one answer about the interface.
const looksByIndex = 16

// open opens the files of a sandbox; nil: it is not there yet.
func open(endpoint, key string) (*sandbox, error) {
	ns, err := netns.Open(key)
	if ns == nil || err != nil {
		return nil, err
	}
	defer ns.Close()
	s := &sandbox{endpoint: endpoint, key: key}
	err = netns.Do(ns, func() (err error) {
		if s.igmp, err = os.Open("/proc/thread-self/net/igmp"); err != nil {
			return err
		}
		if s.mld, err = os.Open("/proc/thread-self/net/igmp6"); errors.Is(err, os.ErrNotExist) { // no IPv6
			err = nil
		}
		return err
	})
	if err != nil {
		s.close()
		return nil, fmt.Errorf("see which multicast groups endpoint %.12s is a member of: %w", endpoint, err)
	}
	return s, nil
}

func (s *sandbox) close() {
	for _, f := range []*os.File{s.igmp, s.mld} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// read returns the groups, and whether there are more than were read.
func (s *sandbox) read() (groups []netip.Addr, more bool, err error) {
	if s.looks%looksByIndex == 0 {
		if s.index, err = link.PeerIndex(s.endpoint); err != nil {
			return nil, false, err
		}
	}
	s.looks++
	for f, parse := range map[*os.File]func(string, int) []netip.Addr{s.igmp: groups4, s.mld: groups6} {
		if f == nil {
			continue
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, false, err
		}
		text, err := io.ReadAll(io.LimitReader(f, maxText))
		if err != nil {
			return nil, false, err
		}
		groups, more = append(groups, parse(string(text), s.index)...), more || len(text) == maxText
	}
	return groups, more, nil
}
