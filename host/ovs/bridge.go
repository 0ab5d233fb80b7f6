package ovs

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Datapath says who moves the packets.
type Datapath string

// The datapaths.
const (
	Kernel    Datapath = "kernel"
	Userspace Datapath = "userspace"
)

// dpType is the datapath's name in Open vSwitch.
func (d Datapath) dpType() string {
	if d == Userspace {
		return "netdev"
	}
	return "system"
}

// Keys of external_ids that mark what is ours.
const (
	idRole     = "grapevine"
	idEndpoint = "endpoint"
	bridgeRole = "bridge"
)

// Bridge is our bridge of an instance. Its methods may be called concurrently.
type Bridge struct {
	*Instance
	Name     string
	Datapath Datapath
}

// Port is a port of the bridge.
type Port struct {
	Name string
	// OFPort is the OpenFlow port, 0 if there is none (yet, or the device is missing).
	OFPort uint32
	// Role and Endpoint are external_ids:grapevine and :endpoint; Role is empty if
	// the port is not ours.
	Role, Endpoint string
	// Type and Options are as in PortSpec.
	Type    string
	Options map[string]string
	// Error is what ovs-vswitchd says about a device that it cannot use.
	Error string
}

// State is the bridge as the database has it.
type State struct {
	Exists bool
	// Ours: the bridge carries our mark. Configured: it is also set up as Ensure does.
	Ours, Configured bool
	Ports            map[string]Port
}

// stateQueries are what a State is made of.
var stateQueries = []query{
	{"Bridge", []string{"name", "ports", "datapath_type", "fail_mode", "other_config", "external_ids"}},
	{"Port", []string{"name", "interfaces"}},
	{"Interface", []string{"name", "ofport", "type", "options", "external_ids", "error"}},
}

// State reads the bridge and its ports in one transaction.
func (b *Bridge) State(ctx context.Context) (State, error) {
	queries := slices.Clone(stateQueries)
	for i := range queries {
		queries[i].columns = append([]string{"_uuid"}, queries[i].columns...)
	}
	tables, err := b.selects(ctx, queries...)
	if err != nil {
		return State{}, fmt.Errorf("read bridge %s: %w", b.Name, err)
	}
	return b.stateOf(tables[0], tables[1], tables[2]), nil
}

// stateOf is the State that rows of Bridge, Port and Interface make.
func (b *Bridge) stateOf(bridges, ports, interfaces []row) State {
	for _, r := range bridges {
		if r.text("name") != b.Name {
			continue
		}
		ours := r.dict("external_ids")[idRole] == bridgeRole
		return State{
			Exists: true, Ours: ours, Ports: portsOf(r.uuids("ports"), ports, interfaces),
			Configured: ours && r.text("datapath_type") == b.Datapath.dpType() && r.text("fail_mode") == "secure" &&
				r.dict("other_config")["disable-in-band"] == "true",
		}
	}
	return State{}
}

// portsOf follows a bridge's references to its ports' interfaces.
func portsOf(uuids []string, ports, interfaces []row) map[string]Port {
	wanted := map[string]bool{}
	for _, p := range ports {
		if slices.Contains(uuids, first(p.uuids("_uuid"))) {
			for _, i := range p.uuids("interfaces") {
				wanted[i] = true
			}
		}
	}
	out := map[string]Port{}
	for _, r := range interfaces {
		if !wanted[first(r.uuids("_uuid"))] {
			continue
		}
		ids := r.dict("external_ids")
		p := Port{
			Name: r.text("name"), Role: ids[idRole], Endpoint: ids[idEndpoint], Error: r.text("error"),
			Type: r.text("type"), Options: r.dict("options"),
		}
		if n, ok := r.number("ofport"); ok && n > 0 {
			p.OFPort = uint32(n)
		}
		out[p.Name] = p
	}
	return out
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}

// Ensure makes the bridge as it should be: secure (no flows: no packets), without
// in-band control, marked as ours. It fails if there is a bridge of that name which
// is not ours. It waits for ovs-vswitchd.
func (b *Bridge) Ensure(ctx context.Context) error {
	s, err := b.State(ctx)
	if err != nil {
		return err
	}
	if s.Configured {
		return nil
	}
	if s.Exists && !s.Ours {
		return fmt.Errorf("the Open vSwitch at %s has a bridge %s that is not grapevine's: rename it", b.DB, b.Name)
	}
	if err := b.write(ctx, func(c *conn) ([]operation, error) { return b.ensureOps(s.Exists), nil }); err != nil {
		return fmt.Errorf("make bridge %s: %w", b.Name, err)
	}
	return nil
}

// Delete removes the bridge with all ports, if it is ours. Nothing there is no error.
func (b *Bridge) Delete(ctx context.Context) error {
	s, err := b.State(ctx)
	if err != nil || !s.Ours {
		return err
	}
	if err := b.write(ctx, func(c *conn) ([]operation, error) { return b.deleteOps(ctx, c) }); err != nil {
		return fmt.Errorf("delete bridge %s: %w", b.Name, err)
	}
	return nil
}

// SetPorts deletes and adds ports in one transaction, waits until ovs-vswitchd
// has done so, and returns the bridge's State then. Ports that exist (of this bridge) are updated,
// ports that are gone are no error. The caller deletes only ports that State shows to be ours.
func (b *Bridge) SetPorts(ctx context.Context, add []PortSpec, del []string) (State, error) {
	c, err := b.dial(ctx)
	if err == nil {
		defer c.close()
		var seen content
		seen, err = c.configureSeen(ctx, stateQueries, func(seen content) ([]operation, error) { return b.portOps(seen, add, del) })
		if err == nil {
			return b.stateOf(seen.rows("Bridge"), seen.rows("Port"), seen.rows("Interface")), nil
		}
	}
	var names []string
	for _, name := range del {
		names = append(names, "-"+name)
	}
	for _, p := range add {
		names = append(names, "+"+p.Name)
	}
	return State{}, fmt.Errorf("change ports of %s (%s): %w", b.Name, strings.Join(names, " "), err)
}

// write does the operations that plan finds, on one connection.
func (b *Bridge) write(ctx context.Context, plan func(*conn) ([]operation, error)) error {
	c, err := b.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	ops, err := plan(c)
	if err != nil {
		return err
	}
	return c.configure(ctx, ops...)
}
