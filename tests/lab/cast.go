package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// castDevice is the interface by which a container is on its network.
const castDevice = "eth0"

// castMain sends to multicast groups and broadcast addresses, and hears what comes. A TO is ADDRESS:PORT.
//
//	hear TO...            is a member of each, and prints what comes
//	tap                   prints all UDP that comes for a group or a broadcast address, member or not
//	send TO LABEL COUNT   sends that many datagrams, one each four milliseconds
//	spoof FROM TO LABEL COUNT   the same, with the source address FROM (IPv4)
//	report GROUP COUNT    says by IGMP that somebody is a member, who is not
//	join COUNT            is a member of that many IPv6 groups, and says when it is
//	blast TO TIME         sends 64 bytes as fast as it can, and prints how many a second went
//	pace TO COUNT         sends that many of 64 bytes, and prints how many nanoseconds one took, by the first hundredth and in the median
//	count TO TIME         prints how many a second come within that time of the first one; then again, after a second without any
func castMain(args []string) error {
	usage := errors.New("give hear, tap, send, spoof, report, join, blast or count, and what it takes")
	if len(args) == 0 {
		return usage
	}
	switch verb, rest := args[0], args[1:]; {
	case verb == "hear":
		return castHear(rest)
	case verb == "tap":
		return castTap()
	case verb == "send" && len(rest) == 3:
		return castSend(rest[0], rest[1], rest[2])
	case verb == "spoof" && len(rest) == 4:
		return castSpoof(rest[0], rest[1], rest[2], rest[3])
	case verb == "report" && len(rest) == 2:
		return castReport(rest[0], rest[1])
	case verb == "blast" && len(rest) == 2:
		return castBlast(rest[0], rest[1])
	case verb == "pace" && len(rest) == 2:
		return castPace(rest[0], rest[1])
	case verb == "count" && len(rest) == 2:
		return castCount(rest[0], rest[1])
	case verb == "join" && len(rest) == 1:
		return castJoin(rest[0])
	case verb == "gre" && len(rest) == 3:
		return castGRE(rest[0], rest[1], rest[2])
	case verb == "bare" && len(rest) == 3:
		return castBare(rest[0], rest[1], rest[2])
	}
	return usage
}

// Cast sends from the container, as castMain says.
func (c Container) Cast(ctx context.Context, args ...string) (string, error) {
	out, err := c.exec(ctx, []string{roleVar + "=" + roleCast}, append([]string{labhost}, args...))
	if err != nil {
		return "", fmt.Errorf("in %s on %s: %w", c.Name, c.Host.Name, err)
	}
	return out, nil
}

// castSocket is a UDP socket of an address' family on the container's interface.
func castSocket(at netip.Addr) (fd, index int, err error) {
	family := unix.AF_INET
	if at.Is6() {
		family = unix.AF_INET6
	}
	dev, err := net.InterfaceByName(castDevice)
	if err != nil {
		return 0, 0, err
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	err = errors.Join(unix.BindToDevice(fd, castDevice), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	if at.Is6() {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1), unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 0))
	} else {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 0))
	}
	return fd, dev.Index, err
}

func castSockaddr(to netip.AddrPort, index int) unix.Sockaddr {
	if to.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	sa := &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	if to.Addr().IsLinkLocalMulticast() {
		sa.ZoneId = uint32(index)
	}
	return sa
}

func castMember(fd, index int, group netip.Addr) error {
	switch {
	case !group.IsMulticast():
		return nil
	case group.Is4():
		return unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(index)})
	}
	return unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(index)})
}

// castEar is a socket that hears what comes for TO, as a member if that is a group.
func castEar(to netip.AddrPort) (fd int, err error) {
	fd, index, err := castSocket(to.Addr())
	if err == nil {
		err = unix.Bind(fd, castSockaddr(to, index))
	}
	if err == nil {
		err = castMember(fd, index, to.Addr())
	}
	if err != nil {
		return 0, fmt.Errorf("hear %s: %w", to, err)
	}
	return fd, nil
}

func castBlast(dst, during string) error {
	to, err := netip.ParseAddrPort(dst)
	if err != nil {
		return err
	}
	long, err := time.ParseDuration(during)
	if err != nil {
		return err
	}
	fd, index, err := castSocket(to.Addr())
	if err != nil {
		return err
	}
	n, text, at, begin := 0, make([]byte, 64), castSockaddr(to, index), time.Now()
	for time.Since(begin) < long {
		if err := unix.Sendto(fd, text, 0, at); err == nil { // a full queue is no end
			n++
		}
	}
	fmt.Printf("sent %.0f a second\n", float64(n)/time.Since(begin).Seconds())
	return nil
}

// castPace takes the time of each: in a lab of namespaces the kernel has brought a datagram to the other container when it was sent, and of
// many some are not disturbed by anybody.
func castPace(dst, count string) error {
	to, err := netip.ParseAddrPort(dst)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	fd, index, err := castSocket(to.Addr())
	if err != nil {
		return err
	}
	text, at, took := make([]byte, 64), castSockaddr(to, index), make([]time.Duration, n)
	for i := range took {
		begin := time.Now()
		_ = unix.Sendto(fd, text, 0, at) // a full queue is no end
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	fmt.Printf("%d %d\n", took[n/100], took[n/2])
	return nil
}

func castCount(dst, during string) error {
	to, err := netip.ParseAddrPort(dst)
	if err != nil {
		return err
	}
	long, err := time.ParseDuration(during)
	if err != nil {
		return err
	}
	fd, err := castEar(to)
	if err != nil {
		return err
	}
	second := unix.NsecToTimeval(int64(time.Second))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &second); err != nil {
		return err
	}
	fmt.Println("hearing")
	n, buf := 0, make([]byte, 2000)
	var begin time.Time
	for {
		_, _, err := unix.Recvfrom(fd, buf, 0)
		switch {
		case err == nil && begin.IsZero():
			begin = time.Now()
		case err == nil && time.Since(begin) < long:
			n++
		case errors.Is(err, unix.EAGAIN) && n > 0:
			fmt.Printf("%.0f a second\n", float64(n)/long.Seconds())
			n, begin = 0, time.Time{}
		}
	}
}

// castHear prints "GROUP SOURCE TEXT" of each datagram. While whoever reads that is slow, the socket is read on.
func castHear(groups []string) error {
	heard := make(chan string, 100000)
	for _, text := range groups {
		to, err := netip.ParseAddrPort(text)
		if err != nil {
			return err
		}
		fd, err := castEar(to)
		if err != nil {
			return err
		}
		go func() {
			buf := make([]byte, 2000)
			for {
				n, from, err := unix.Recvfrom(fd, buf, 0)
				if err == nil {
					heard <- fmt.Sprintln(to.Addr(), castSource(from), string(buf[:n]))
				}
			}
		}()
	}
	fmt.Println("hearing")
	for line := range heard {
		fmt.Print(line)
	}
	return nil
}

func castSource(from unix.Sockaddr) netip.Addr {
	switch sa := from.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(sa.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(sa.Addr)
	}
	return netip.Addr{}
}

// castTap prints "GROUP SOURCE TEXT" of each frame.
func castTap() error {
	dev, err := net.InterfaceByName(castDevice)
	if err != nil {
		return err
	}
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, all)
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}); err != nil {
		return err
	}
	fmt.Println("hearing")
	buf := make([]byte, 2000)
	for {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if sa, ok := from.(*unix.SockaddrLinklayer); err != nil || !ok || sa.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		switch b := buf[:n]; {
		case n > 28 && b[0] == 0x45 && b[9] == unix.IPPROTO_UDP && (b[16] >= 224 || b[19] == 255):
			fmt.Println(netip.AddrFrom4([4]byte(b[16:20])), netip.AddrFrom4([4]byte(b[12:16])), string(b[28:]))
		case n > 48 && b[0]>>4 == 6 && b[6] == unix.IPPROTO_UDP && b[24] == 0xff:
			fmt.Println(netip.AddrFrom16([16]byte(b[24:40])), netip.AddrFrom16([16]byte(b[8:24])), string(b[48:]))
		}
	}
}

func castSend(dst, label, count string) error {
	to, err := netip.ParseAddrPort(dst)
	if err != nil {
		return err
	}
	fd, index, err := castSocket(to.Addr())
	if err != nil {
		return err
	}
	return castTimes(count, func(i int) error {
		return unix.Sendto(fd, fmt.Appendf(nil, "%s %d", label, i), 0, castSockaddr(to, index))
	})
}

// castEvery is how long it is from one to the next. A socket has room for some 250 of them: on a crowded machine a switch, and who
// hears, may wait for a processor until that many have come, and what comes then is lost by none of those that are tried.
const castEvery = 4 * time.Millisecond

// castTimes does it so many times, castEvery apart.
func castTimes(count string, do func(int) error) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	for i := range n {
		if err := do(i); err != nil {
			return err
		}
		time.Sleep(castEvery)
	}
	return nil
}

// castRaw is a socket that sends IPv4 packets with headers as they are given.
func castRaw() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
	if err != nil {
		return 0, err
	}
	return fd, unix.BindToDevice(fd, castDevice)
}

func castPacket(from, to netip.Addr, proto byte, payload []byte) []byte {
	p := make([]byte, 20, 20+len(payload))
	p[0], p[8], p[9] = 0x45, 1, proto
	binary.BigEndian.PutUint16(p[2:], uint16(20+len(payload)))
	src, dst := from.As4(), to.As4()
	copy(p[12:], src[:])
	copy(p[16:], dst[:])
	return append(p, payload...)
}

func castSpoof(src, dst, label, count string) error {
	from, err := netip.ParseAddr(src)
	if err != nil {
		return err
	}
	to, err := netip.ParseAddrPort(dst)
	if err != nil {
		return err
	}
	fd, err := castRaw()
	if err != nil {
		return err
	}
	return castTimes(count, func(i int) error {
		text := fmt.Sprintf("%s %d", label, i)
		udp := binary.BigEndian.AppendUint16(nil, to.Port())
		udp = binary.BigEndian.AppendUint16(udp, to.Port())
		udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(text)))
		udp = append(append(udp, 0, 0), text...) // no checksum
		return unix.Sendto(fd, castPacket(from, to.Addr(), unix.IPPROTO_UDP, udp), 0, &unix.SockaddrInet4{Addr: to.Addr().As4()})
	})
}

// castReport sends reports of IGMPv2 (RFC 2236) from the container's own address.
func castReport(group, count string) error {
	to, err := netip.ParseAddr(group)
	if err != nil {
		return err
	}
	dev, err := net.InterfaceByName(castDevice)
	if err != nil {
		return err
	}
	addrs, err := dev.Addrs()
	if err != nil || len(addrs) == 0 {
		return fmt.Errorf("find the address of %s: %w", castDevice, err)
	}
	own, err := netip.ParsePrefix(addrs[0].String())
	if err != nil {
		return err
	}
	fd, err := castRaw()
	if err != nil {
		return err
	}
	b := to.As4()
	igmp := append([]byte{0x16, 0, 0, 0}, b[:]...)
	sum := uint32(0x1600) + uint32(binary.BigEndian.Uint16(b[:])) + uint32(binary.BigEndian.Uint16(b[2:]))
	binary.BigEndian.PutUint16(igmp[2:], ^uint16(sum+sum>>16))
	return castTimes(count, func(int) error {
		return unix.Sendto(fd, castPacket(own.Addr(), to, unix.IPPROTO_IGMP, igmp), 0, &unix.SockaddrInet4{Addr: b})
	})
}

// castJoin joins ff05::1:0:0 and the ones after it, some on each socket, and stays.
func castJoin(count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	group, fd, index := netip.MustParseAddr("ff05::1:0:0"), 0, 0
	for i := range n {
		if i%100 == 0 {
			if fd, index, err = castSocket(group); err != nil {
				return err
			}
		}
		if err := castMember(fd, index, group); err != nil {
			return fmt.Errorf("join %s, after %d others: %w", group, i, err)
		}
		group = group.Next()
	}
	fmt.Fprintln(os.Stdout, "joined", n)
	for {
		time.Sleep(time.Hour) // not select {}: nobody else runs here, and the runtime would end it
	}
}
