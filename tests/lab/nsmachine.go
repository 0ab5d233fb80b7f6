package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// littleGC lets programs in Go have five times what they need, in place of twice, before they collect garbage.
const littleGC = "GOGC=400"

// nsMachine is a host made of namespaces.
type nsMachine struct {
	host *Host
	box  *box
	nics []string // the router's ends of further interfaces
}

func (m *nsMachine) server() *box { return m.box }

// kill is a power loss: nothing is heard of the host any more, though its kernel's part of
// the network goes on until it is cleaned up, some time after the processes.
func (m *nsMachine) kill() {
	w := m.host.lab.Wire
	for _, end := range append(m.nics, m.host.Name) {
		w.unplug(context.Background(), end)
	}
	m.nics = nil
	m.box.kill()
}

func (m *nsMachine) boot(ctx context.Context) error {
	l, h := m.host.lab, m.host
	lower := l.opts.Tree
	if lower == "" {
		lower = "/"
	}
	if err := mkdirs(h.dir()); err != nil {
		return err
	}
	if err := l.ownDisk(l.sub(h.Name, "disk")); err != nil {
		return err
	}
	spec := boxSpec{Hostname: h.Name, Net: netSpec{IP: []string{"link set lo up"}}, Root: &rootSpec{
		Lower: lower, State: l.sub(h.Name, "disk"), Mount: l.sub(h.Name, "root"), Share: l.share(),
		Compose: l.opts.Compose,
	}}
	if l.opts.LittleGC {
		spec.Env = append(spec.Env, littleGC)
	}
	if err := mkdirs(spec.Root.State, spec.Root.Mount); err != nil {
		return err
	}
	var err error
	if m.box, err = startBox(h.dir(), spec, boxNamespaces); err != nil {
		return err
	}
	if err := m.connect(ctx); err != nil {
		m.box.kill()
		return err
	}
	return nil
}

func (m *nsMachine) connect(ctx context.Context) error {
	if err := m.box.ready(ctx); err != nil {
		return err
	}
	l := m.host.lab
	if err := l.Wire.plug(ctx, m.host.Name, m.box.pid(), l.opts.MTU); err != nil {
		return err
	}
	lines := strings.Join(hostNet(m.host.n), "\n")
	_, err := m.box.run(ctx, request{Argv: []string{"ip", "-batch", "-"}, Stdin: []byte(lines)})
	return err
}

// AddNIC gives a host another interface, to a LAN of its own name on the hosts' router, which is made when the first host comes to
// it. On the router its end is HOST-NIC: who sets that down takes the cable out. It goes when the host boots.
func (w *Wire) AddNIC(ctx context.Context, h *Host, nic string, addrs ...string) error {
	m, is := h.machine.(*nsMachine)
	if !is {
		return fmt.Errorf("a second interface, of a host that is no namespace: %w", errors.ErrUnsupported)
	}
	end := h.Name + "-" + nic
	if err := enterNet(ctx, w.box.pid(), "link show dev "+nic); err != nil {
		if err := enterNet(ctx, w.box.pid(), fmt.Sprintf("link add %s type bridge mcast_snooping 0\nlink set %[1]s up", nic)); err != nil {
			return err
		}
	}
	w.unplug(ctx, end)
	m.nics = append(m.nics, end)
	if err := enterNet(ctx, w.box.pid(), fmt.Sprintf("link add %s type veth peer name %s netns %d\nlink set %[1]s master %[2]s up", end, nic, m.box.pid())); err != nil {
		return err
	}
	lines := []string{"link set " + nic + " up"}
	for _, a := range addrs {
		nodad := ""
		if strings.Contains(a, ":") {
			nodad = " nodad"
		}
		lines = append(lines, "addr add "+a+" dev "+nic+nodad)
	}
	_, err := m.box.run(ctx, request{Argv: []string{"ip", "-batch", "-"}, Stdin: []byte(strings.Join(lines, "\n"))})
	return err
}
