package link

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Seen is what Glance tells of an interface.
type Seen struct {
	Index int
	MTU   int // bytes, without the Ethernet header
	Up    bool
}

// NameOf is the name of an interface by its index; empty: there is none. It costs an eighth of net.InterfaceByIndex.
func NameOf(index int) string {
	r, err := unix.NewIfreq("")
	if err != nil {
		return ""
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	r.SetUint32(uint32(index))
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFNAME, r); err != nil {
		return ""
	}
	return r.Name()
}

// Glance is for who looks at one interface again and again: it costs a tenth of Get, to which the kernel
// tells all that it knows of the interface. An error is ErrNotFound if there is none of the name.
func Glance(name string) (s Seen, err error) {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return s, fmt.Errorf("interface %s: %w", name, err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return s, fmt.Errorf("look at interface %s: %w", name, err)
	}
	defer unix.Close(fd)
	for _, ask := range []struct {
		what uint
		take func()
	}{
		{unix.SIOCGIFINDEX, func() { s.Index = int(r.Uint32()) }},
		{unix.SIOCGIFMTU, func() { s.MTU = int(r.Uint32()) }},
		{unix.SIOCGIFFLAGS, func() { s.Up = r.Uint16()&unix.IFF_UP != 0 }},
	} {
		if err := unix.IoctlIfreq(fd, ask.what, r); err != nil {
			return s, fmt.Errorf("interface %s: %w", name, mapErr(err))
		}
		ask.take()
	}
	return s, nil
}
