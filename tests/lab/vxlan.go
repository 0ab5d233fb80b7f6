package lab

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// ForgeVXLAN has a host, or a container of it if one is named, send n VXLAN packets (RFC 7348) to
// an address of the host of the container to, with a datagram in each that seems to be from an
// address of the network that both are on. It returns how many of them arrived in the
// container, where nobody waits for them. No agent is asked.
func ForgeVXLAN(ctx context.Context, h *Host, container string, at netip.Addr, n int, vnid uint32, from netip.Addr, network string, to Container) (arrived int, err error) {
	mac, err := net.ParseMAC(to.MACs[network])
	if err != nil || len(to.Addrs[network]) == 0 {
		return 0, fmt.Errorf("%s on %s is not on %s: %w", to.Name, to.Host.Name, network, err)
	}
	header := make([]byte, 8)
	header[0] = 0x08 // it has a VNI
	binary.BigEndian.PutUint32(header[4:], vnid<<8)
	packet := slices.Concat(header, datagramFrame(mac, net.HardwareAddr{2, 0x42, 10, 1, 2, 3}, from, to.Addrs[network][0], []byte("forged")))
	var text strings.Builder
	for _, b := range packet {
		fmt.Fprintf(&text, `\%03o`, b)
	}
	before, err := to.unwanted(ctx)
	if err != nil {
		return 0, err
	}
	// printf writes line by line, dd all at once: one datagram.
	script := fmt.Sprintf("set -e; for n in $(seq %d); do printf '%s' | dd bs=2000 iflag=fullblock status=none > /dev/udp/%s/4789; sleep 0.05; done", n, text.String(), at)
	command := []string{"bash", "-c", script}
	if container != "" {
		command = []string{"sh", "-c", `exec nsenter --net --target "$(docker inspect -f "{{.State.Pid}}" "$1")" bash -c "$2"`, "sh", container, script}
	}
	if _, err := h.Exec(ctx, command...); err != nil {
		return 0, err
	}
	after, err := to.unwanted(ctx)
	return after - before, err
}

// unwanted counts the datagrams that came to ports of the container where nobody listens.
func (c Container) unwanted(ctx context.Context) (int, error) {
	text, err := c.Exec(ctx, "cat", "/proc/net/snmp")
	if err != nil {
		return 0, err
	}
	var names []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if words[0] != "Udp:" {
			continue
		}
		for i, name := range names {
			if name == "NoPorts" {
				return strconv.Atoi(words[i])
			}
		}
		names = words
	}
	return 0, fmt.Errorf("no count of datagrams in\n%s", text)
}
