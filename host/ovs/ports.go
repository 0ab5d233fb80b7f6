package ovs

import (
	"context"
	"fmt"
)

// PortSpec is a port to add.
type PortSpec struct {
	Name string
	// Type is empty for a device of the host, "internal" for one that Open vSwitch
	// makes, or a tunnel type.
	Type           string
	Role, Endpoint string
	// Options are the type's options; MAC and MTU (bytes) are of an internal port,
	// empty and 0: Open vSwitch's choice.
	Options map[string]string
	MAC     string
	MTU     int
}

// ids are the external_ids that say whose the port is.
func (p PortSpec) ids() map[string]string {
	ids := map[string]string{idRole: p.Role}
	if p.Endpoint != "" {
		ids[idEndpoint] = p.Endpoint
	}
	return ids
}

// columns are those of the port's row in Interface, but for its name and external_ids.
func (p PortSpec) columns() map[string]any {
	row := map[string]any{"type": p.Type, "options": mapOf(p.Options)}
	if p.MAC != "" {
		row["mac"] = p.MAC
	}
	if p.MTU != 0 {
		row["mtu_request"] = p.MTU
	}
	return row
}

// ensureOps makes the bridge, or sets right the one that exists.
func (b *Bridge) ensureOps(exists bool) []operation {
	row := map[string]any{"datapath_type": b.Datapath.dpType(), "fail_mode": "secure"}
	control, ids := map[string]string{"disable-in-band": "true"}, map[string]string{idRole: bridgeRole}
	if exists {
		return []operation{
			update("Bridge", named(b.Name), row),
			mutate("Bridge", named(b.Name), put("other_config", control)...),
			mutate("Bridge", named(b.Name), put("external_ids", ids)...),
		}
	}
	row["name"], row["other_config"], row["external_ids"] = b.Name, mapOf(control), mapOf(ids)
	row["ports"] = inserted("port")
	return []operation{
		insert("Interface", "interface", map[string]any{"name": b.Name, "type": "internal"}),
		insert("Port", "port", map[string]any{"name": b.Name, "interfaces": inserted("interface")}),
		insert("Bridge", "bridge", row),
		mutate(openVSwitch, all, []any{"bridges", "insert", inserted("bridge")}),
	}
}

// deleteOps takes the bridge from the row that keeps it; its ports go with it.
func (b *Bridge) deleteOps(ctx context.Context, c *conn) ([]operation, error) {
	found, err := c.selects(ctx, query{"Bridge", []string{"_uuid", "name"}})
	if err != nil {
		return nil, err
	}
	var ops []operation
	for _, r := range found[0] {
		if r.text("name") == b.Name {
			ops = append(ops, mutate(openVSwitch, all, []any{"bridges", "delete", []any{"uuid", first(r.uuids("_uuid"))}}))
		}
	}
	return ops, nil
}

// portOps changes ports. A port in both lists is made anew.
func (b *Bridge) portOps(seen content, add []PortSpec, del []string) ([]operation, error) {
	ports, err := b.portUUIDs(seen)
	if err != nil {
		return nil, err
	}
	var ops []operation
	for _, name := range del {
		if u, there := ports[name]; there {
			ops = append(ops, mutate("Bridge", named(b.Name), []any{"ports", "delete", []any{"uuid", u}}))
			delete(ports, name)
		}
	}
	for n, p := range add {
		if _, there := ports[p.Name]; there {
			ops = append(ops,
				update("Interface", named(p.Name), p.columns()),
				mutate("Interface", named(p.Name), put("external_ids", p.ids())...))
			continue
		}
		row := p.columns()
		row["name"], row["external_ids"] = p.Name, mapOf(p.ids())
		port, iface := fmt.Sprintf("port%d", n), fmt.Sprintf("interface%d", n)
		ops = append(ops,
			insert("Interface", iface, row),
			insert("Port", port, map[string]any{"name": p.Name, "interfaces": inserted(iface)}),
			mutate("Bridge", named(b.Name), []any{"ports", "insert", inserted(port)}))
	}
	return ops, nil
}

// portUUIDs are the rows in Port of the bridge's ports, by name.
func (b *Bridge) portUUIDs(seen content) (map[string]string, error) {
	ours := map[string]bool{}
	exists := false
	for _, r := range seen.rows("Bridge") {
		if r.text("name") == b.Name {
			exists = true
			for _, u := range r.uuids("ports") {
				ours[u] = true
			}
		}
	}
	if !exists {
		return nil, fmt.Errorf("there is no bridge %s", b.Name)
	}
	ports := map[string]string{}
	for _, r := range seen.rows("Port") {
		if u := first(r.uuids("_uuid")); ours[u] {
			ports[r.text("name")] = u
		}
	}
	return ports, nil
}

// put is the mutations that give keys of a map column their values and leave its
// other keys.
func put(column string, m map[string]string) []any {
	keys := []string{}
	for k := range m {
		keys = append(keys, k)
	}
	return []any{[]any{column, "delete", setOf(keys)}, []any{column, "insert", mapOf(m)}}
}
