package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

var packetCommands = map[string]command{
	"reach":       reach,
	"unreachable": unreachable,
	"mesh":        mesh,
	"fetch":       fetch,
	"cast":        cast,
	"pinging":     pinging,
	"pinged":      pinged,
	"address":     address,
	"distinct":    distinct,
	"forge":       forge,
	"scan":        scan,
	"late":        late,
}

const (
	reachWithin = 5 * time.Second
	silentFor   = time.Second
)

// container finds HOST:NAME.
func (s *state) container(ctx context.Context, ref string) (lab.Container, error) {
	host, name, found := strings.Cut(ref, ":")
	if !found {
		return lab.Container{}, usageError(ref + " is not HOST:CONTAINER")
	}
	h, err := s.host(host)
	if err != nil {
		return lab.Container{}, err
	}
	return h.Container(ctx, name)
}

// addrs are the addresses of a target: HOST:CONTAINER (all of them),
// HOST:CONTAINER@NETWORK, HOST, outside, or an address. With /4 or /6 behind it, it is
// those of that family; HOST and outside are IPv4's without.
func (s *state) addrs(ctx context.Context, ref string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(ref); err == nil {
		return []netip.Addr{addr}, nil
	}
	ref, family, _ := strings.Cut(ref, "/")
	all, err := s.allAddrs(ctx, ref)
	if err != nil {
		return nil, err
	}
	if family == "" && !strings.Contains(ref, ":") {
		family = "4"
	}
	found := slices.DeleteFunc(all, func(a netip.Addr) bool { return family != "" && a.Is6() != (family == "6") })
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no IPv%s address", ref, family)
	}
	return found, nil
}

func (s *state) allAddrs(ctx context.Context, ref string) ([]netip.Addr, error) {
	if ref == "outside" {
		return []netip.Addr{netip.MustParseAddr(lab.OutsideAddr), netip.MustParseAddr(lab.OutsideAddr6)}, nil
	}
	if !strings.Contains(ref, ":") {
		h, err := s.host(ref)
		if err != nil {
			return nil, err
		}
		return []netip.Addr{h.Addr(), h.Addr6()}, nil
	}
	ref, network, one := strings.Cut(ref, "@")
	c, err := s.container(ctx, ref)
	if err != nil {
		return nil, err
	}
	found := c.AllAddrs()
	if one {
		found = c.Addrs[network]
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s has no address on %s", ref, network)
	}
	return found, nil
}

// ends resolves SOURCE TARGET...
func (s *state) ends(ctx context.Context, args []string) (lab.Container, []netip.Addr, error) {
	if len(args) < 2 {
		return lab.Container{}, nil, usageError("usage: reach|unreachable HOST:CONTAINER TARGET...")
	}
	from, err := s.container(ctx, args[0])
	if err != nil {
		return from, nil, err
	}
	var to []netip.Addr
	for _, ref := range args[1:] {
		addrs, err := s.addrs(ctx, ref)
		if err != nil {
			return from, nil, err
		}
		to = append(to, addrs...)
	}
	return from, to, nil
}

// reach HOST:CONTAINER TARGET...: each target answers a ping within 5 s.
func reach(ctx context.Context, s *state, args []string) (string, error) {
	from, to, err := s.ends(ctx, args)
	if err != nil {
		return "", err
	}
	return "", from.Reach(ctx, reachWithin*s.patience(), to...)
}

// unreachable HOST:CONTAINER TARGET...: none answers a ping for 1 s.
func unreachable(ctx context.Context, s *state, args []string) (string, error) {
	from, to, err := s.ends(ctx, args)
	if err != nil {
		return "", usageError(err.Error()) // silence because nobody is there proves nothing
	}
	return "", from.Silent(ctx, silentFor, to...)
}

// mesh HOST:CONTAINER...: each reaches each other one.
func mesh(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 2 {
		return "", usageError("usage: mesh HOST:CONTAINER HOST:CONTAINER...")
	}
	var errs []error
	for i, from := range args {
		others := slices.Delete(slices.Clone(args), i, i+1)
		_, err := reach(ctx, s, append([]string{from}, others...))
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// fetch HOST:CONTAINER URL: what the URL answers.
func fetch(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) != 2 {
		return "", usageError("usage: fetch HOST:CONTAINER URL")
	}
	from, err := s.container(ctx, args[0])
	if err != nil {
		return "", err
	}
	return from.Fetch(ctx, args[1])
}

// pinging HOST:CONTAINER TARGET: ping 100 times a second from now on.
func pinging(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) == 2 && s.pings[args[0]] == nil {
		from, to, err := s.ends(ctx, args)
		if err != nil {
			return "", err
		}
		s.pings[args[0]], err = from.StartPinging(ctx, to[0], 10*time.Millisecond)
		return "", err
	}
	return "", usageError("usage, once for a container: pinging HOST:CONTAINER TARGET")
}

// pinged HOST:CONTAINER lost N | gap DURATION: end that, and say how many may have
// been lost, or how long at most there may have been no answer.
func pinged(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) != 3 || s.pings[args[0]] == nil {
		return "", usageError("usage, after pinging: pinged HOST:CONTAINER lost N|gap DURATION")
	}
	result, err := s.pings[args[0]].Stop(ctx)
	if err != nil {
		return "", err
	}
	delete(s.pings, args[0])
	said := result.String() + "\n"
	if result.Sent < 20 {
		return said, fmt.Errorf("only %d pings were sent: the script was too fast to prove anything", result.Sent)
	}
	most, numErr := strconv.Atoi(args[2])
	longest, durErr := time.ParseDuration(args[2])
	switch {
	case args[1] == "lost" && numErr == nil:
		if result.Lost() > most {
			return said, fmt.Errorf("of the pings from %s %swant at most %d lost", args[0], said, most)
		}
	case args[1] == "gap" && durErr == nil:
		if result.Gap > longest || result.Received == 0 {
			return said, fmt.Errorf("of the pings from %s %swant no gap over %s", args[0], said, longest)
		}
	default:
		return "", usageError("usage: pinged HOST:CONTAINER lost N|gap DURATION")
	}
	return said, nil
}

// address NAME TARGET: put a target's first address into the variable $NAME.
func address(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) != 2 {
		return "", usageError("usage: address NAME TARGET")
	}
	addrs, err := s.addrs(ctx, args[1])
	if err != nil {
		return "", err
	}
	s.setenv(args[0], addrs[0].String())
	return addrs[0].String() + "\n", nil
}

// scan HOST:CONTAINER TARGET COUNT: the container sends so many SYNs, each to a port of its own; prints how many.
func scan(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) != 3 {
		return "", usageError("usage: scan HOST:CONTAINER TARGET COUNT")
	}
	from, to, err := s.ends(ctx, args[:2])
	if err != nil {
		return "", err
	}
	return from.Scan(ctx, to[0].String(), args[2])
}

// late HOST:CONTAINER HOST:CONTAINER HOST:CONTAINER COMMAND...: the first sends to UDP port 7000 of the second while the third floods that with SYNs to all
// ports, so that the switch has tens of thousands of megaflows. Nothing arrives that is sent after their host has run the command, and something does before.
func late(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 4 {
		return "", usageError("usage: late HOST:CONTAINER HOST:CONTAINER HOST:CONTAINER COMMAND...")
	}
	from, addrs, err := s.ends(ctx, args[:2])
	if err != nil {
		return "", err
	}
	to, err := s.container(ctx, args[1])
	if err != nil {
		return "", err
	}
	floods, err := s.container(ctx, args[2])
	if err != nil {
		return "", err
	}
	const all = "60000"
	late, before, last, err := lab.Late(ctx, from, to, addrs[0], func() (end time.Time, err error) {
		if _, err := floods.Scan(ctx, addrs[0].String(), all); err != nil {
			return end, err
		}
		flooding, stop := context.WithCancel(ctx)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for flooding.Err() == nil {
				_, _ = floods.Scan(flooding, addrs[0].String(), all)
			}
		}()
		defer func() { stop(); <-stopped }()
		time.Sleep(time.Second)
		out, err := to.Host.Exec(ctx, append([]string{"sh", "-c", `"$@" >&2 && date +%s%N`, "sh"}, args[3:]...)...)
		if err != nil {
			return end, err
		}
		said := strings.Fields(out)
		nano, err := strconv.ParseInt(said[len(said)-1], 10, 64)
		return time.Unix(0, nano), err
	})
	said := fmt.Sprintf("%d datagrams arrived that were sent before, %d that were sent after %q, the last one %v after it\n", before, late, args[3:], last)
	switch {
	case err != nil:
		return "", err
	case before < 100 || late > 0:
		return said, errors.New(said)
	}
	return said, nil
}

// distinct TARGET...: all addresses of all targets differ.
func distinct(ctx context.Context, s *state, args []string) (string, error) {
	owner := map[netip.Addr]string{}
	for _, ref := range args {
		addrs, err := s.addrs(ctx, ref)
		if err != nil {
			return "", usageError(err.Error())
		}
		for _, addr := range addrs {
			if other, taken := owner[addr]; taken {
				return "", fmt.Errorf("%s has the address %s of %s", ref, addr, other)
			}
			owner[addr] = ref
		}
	}
	return "", nil
}

// forge [vxlan|geneve|geneve-option|gre|bare] HOST[:CONTAINER] VNID HOST:CONTAINER HOST:CONTAINER [ADDRESS]: the host, or the container,
// sends packets of VXLAN, or of what is named, to the host of the second container, to its address on the wire or to that one, with datagrams in them from the first to the second, which are on
// one network of that VNID. It prints how many arrive.
func forge(ctx context.Context, s *state, args []string) (string, error) {
	const packets = 5
	wrapping := lab.Wrappings["vxlan"]
	if len(args) > 0 {
		if w, named := lab.Wrappings[args[0]]; named {
			wrapping, args = w, args[1:]
		}
	}
	if len(args) != 4 && len(args) != 5 {
		return "", usageError("usage: forge [vxlan|geneve|geneve-option|gre|bare] HOST[:CONTAINER] VNID HOST:CONTAINER HOST:CONTAINER [ADDRESS]")
	}
	name, container, _ := strings.Cut(args[0], ":")
	h, err := s.host(name)
	if err != nil {
		return "", err
	}
	vnid, err := strconv.ParseUint(args[1], 10, 24)
	if err != nil {
		return "", usageError(err.Error())
	}
	from, err := s.container(ctx, args[2])
	if err != nil {
		return "", err
	}
	to, err := s.container(ctx, args[3])
	if err != nil {
		return "", err
	}
	at := to.Host.Addr()
	if len(args) == 5 {
		if at, err = netip.ParseAddr(args[4]); err != nil {
			return "", usageError(err.Error())
		}
	}
	for network, addrs := range from.Addrs {
		if len(to.Addrs[network]) > 0 {
			arrived, err := lab.Forge(ctx, h, wrapping, container, at, packets, uint32(vnid), addrs[0], network, to)
			return fmt.Sprintf("%d of %d arrived\n", arrived, packets), err
		}
	}
	return "", usageError(args[2] + " and " + args[3] + " are on no network together")
}

// cast HOST:CONTAINER send TO LABEL COUNT, spoof FROM TO LABEL COUNT, report GROUP COUNT, blast TO TIME: it sends to multicast groups or broadcast addresses.
func cast(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 2 {
		return "", usageError("usage: cast HOST:CONTAINER send|spoof|report ...")
	}
	from, err := s.container(ctx, args[0])
	if err != nil {
		return "", err
	}
	return from.Cast(ctx, args[1:]...)
}
