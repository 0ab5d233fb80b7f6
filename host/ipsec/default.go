package ipsec

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Blocks says whether packets for which there is no policy are dropped, in or out (`ip xfrm policy setdefault`, Linux
// 5.15).
func Blocks() (bool, error) {
	const getDefault, blocked = 0x28, 1 // XFRM_MSG_GETDEFAULT, XFRM_USERPOLICY_BLOCK
	req := nl.NewNetlinkRequest(getDefault, 0)
	req.AddRawData(make([]byte, 4)) // struct xfrm_userpolicy_default, aligned
	replies, err := req.Execute(unix.NETLINK_XFRM, 0)
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EINVAL):
		return false, nil // a kernel without XFRM, or without defaults
	case err != nil:
		return false, fmt.Errorf("ask for IPsec's default: %w", err)
	case len(replies) == 0 || len(replies[0]) < 3:
		return false, errors.New("ask for IPsec's default: the kernel says nothing")
	}
	in, out := replies[0][0], replies[0][2] // and forwarded between them
	return in == blocked || out == blocked, nil
}
