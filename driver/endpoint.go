package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/docker/go-plugins-helpers/network"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// endpoints makes endpoints and ends them, and networks with them.
type endpoints struct {
	core      *core
	publisher *publisher
	labels    *labels
	networks  *networks
}

// CreateEndpoint is Driver.CreateEndpoint.
func (d *endpoints) CreateEndpoint(ctx context.Context, r *network.CreateEndpointRequest) (*network.CreateEndpointResponse, error) {
	if err := d.networks.takeUp(ctx, r.NetworkID); err != nil {
		return nil, err
	}
	e, given, err := d.parseEndpoint(r)
	if err != nil {
		return nil, err
	}
	reply := &network.CreateEndpointResponse{Interface: &network.EndpointInterface{}}
	if !given {
		reply.Interface.MacAddress = e.MAC
	}
	if err := d.core.keeping(ctx, e.Network, func() error { return d.bind(ctx, e) }); err != nil {
		return nil, err
	}
	if err := d.addEndpoint(e); err != nil {
		return nil, errors.Join(err, d.unbind(e))
	}
	return reply, nil
}

// bind makes all of the endpoint's addresses its own, or none.
func (d *endpoints) bind(ctx context.Context, e localEndpoint) error {
	n, err := d.core.network(e.Network)
	if err != nil {
		return err
	}
	if err := d.leaseBesides(ctx, n, e); err != nil {
		return errors.Join(err, d.unbind(e))
	}
	for _, a := range e.all() {
		p, _, _ := n.subnetOf(a)
		if err := d.core.alloc.Bind(p, a, e.ID); err != nil {
			return errors.Join(err, d.unbind(e))
		}
	}
	return nil
}

// unbind makes none of its addresses the endpoint's. Docker gives those back that it asked for.
func (d *endpoints) unbind(e localEndpoint) error {
	return errors.Join(d.core.alloc.Unbind(e.ID), freeBesides(d.core.alloc, e))
}

// parseEndpoint reads the request; given says that it has a MAC address.
func (d *endpoints) parseEndpoint(r *network.CreateEndpointRequest) (e localEndpoint, given bool, err error) {
	if err := checkEndpointID(r.EndpointID); err != nil {
		return e, false, err
	}
	n, err := d.core.network(r.NetworkID)
	if err != nil {
		return e, false, err
	}
	if r.Interface == nil || r.Interface.Address == "" && r.Interface.AddressIPv6 == "" {
		return e, false, errors.New("the endpoint has no address; the network's IPAM driver must be grapevine's")
	}
	e = localEndpoint{ID: r.EndpointID, Network: n.ID, Created: d.core.cfg.Now()}
	if e.Prefix, e.Addr, err = n.address(r.Interface.Address, false); err != nil {
		return e, false, err
	}
	if e.Prefix6, e.Addr6, err = n.address(r.Interface.AddressIPv6, true); err != nil {
		return e, false, err
	}
	if err := checkDriverOpts(r.Options); err != nil {
		return e, false, err
	}
	if e.Besides, err = besides(r.Options); err != nil {
		return e, false, err
	}
	if err := e.readLimits(r.Options); err != nil {
		return e, false, err
	}
	if err := d.core.canLimit(e.Limits); err != nil {
		return e, false, fmt.Errorf("delay, jitter or loss of a container: %w", err)
	}
	if err := e.checkBesides(n); err != nil {
		return e, false, err
	}
	e.MAC = macFor(e.addrs()[0])
	if r.Interface.MacAddress == "" {
		return e, false, nil
	}
	mac, err := net.ParseMAC(r.Interface.MacAddress)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
		return e, true, fmt.Errorf("MAC address %.40q is not a unicast Ethernet address", r.Interface.MacAddress)
	}
	e.MAC = mac.String()
	return e, true, nil
}

// address reads an endpoint's address, "" for none, and finds its subnet.
func (n localNetwork) address(text string, v6 bool) (subnet netip.Prefix, a netip.Addr, err error) {
	if text == "" {
		return subnet, a, nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return subnet, a, fmt.Errorf("address %.60q is not like 10.1.0.2/16 or fd12::2/64: %w", text, err)
	}
	subnet, _, ok := n.subnetOf(p.Addr())
	if !ok || p.Addr().Is6() != v6 {
		return subnet, a, fmt.Errorf("address %s is in none of the network's subnets %s", p.Addr(), prefixList(n.Prefixes))
	}
	return subnet, p.Addr(), nil
}

// macFor makes the MAC address that goes with an IPv4 address, as Docker does, or with
// the end of an IPv6 address.
func macFor(a netip.Addr) string {
	b := a.AsSlice()
	return net.HardwareAddr(append([]byte{0x02, 0x42}, b[len(b)-4:]...)).String()
}

func (d *endpoints) addEndpoint(e localEndpoint) error {
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	n, ok := d.core.local.networks[e.Network]
	if !ok {
		return fmt.Errorf("network %.12s was removed meanwhile", e.Network)
	}
	if old, again := d.core.local.endpoints[e.ID]; again {
		e.Joined, e.Sandbox, e.Ports, e.Created = old.Joined, old.Sandbox, old.Ports, old.Created
	}
	if err := d.core.local.setEndpoint(e); err != nil {
		return err
	}
	_, err := d.core.replica.Update(func(tx *replica.Tx) error {
		if err := announce(tx, d.core.cfg.Self, n, n.subnets(d.core.cfg.Self), false); err != nil {
			return err
		}
		use(tx, d.core.cfg.Self, n.Name)
		rec := cluster.Endpoint{ID: e.ID, Network: n.Name, Addrs: e.all(), Besides: len(e.Besides), MAC: e.MAC, Host: d.core.cfg.Self, Limits: e.Limits}
		if old, live := cluster.Get[cluster.Endpoint](tx.Snapshot(), e.ID); live {
			old.Network, old.Addrs, old.Besides, old.MAC, old.Limits = rec.Network, rec.Addrs, rec.Besides, rec.MAC, rec.Limits
			rec = old
		}
		_ = tx.Put(rec) // Update reports it
		return nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("announce endpoint %.12s: %w", e.ID, err), d.core.local.dropEndpoint(e.ID))
	}
	return nil
}

// DeleteEndpoint is Driver.DeleteEndpoint.
func (d *endpoints) DeleteEndpoint(ctx context.Context, r *network.DeleteEndpointRequest) (*Empty, error) {
	err := d.removeEndpoint(ctx, r.EndpointID)
	if err != nil {
		d.core.mu.Lock()
		defer d.core.mu.Unlock()
		d.core.deleteLost = d.core.cfg.Now()
	}
	return &Empty{}, err
}

func (d *endpoints) removeEndpoint(ctx context.Context, id string) error {
	err := d.unplug(ctx, id)
	d.core.mu.Lock()
	defer d.core.mu.Unlock()
	e, ok := d.core.local.endpoints[id]
	if ok {
		_, uerr := d.core.replica.Update(func(tx *replica.Tx) error {
			tx.Delete(cluster.Endpoint{ID: id}.Key())
			return nil
		})
		if uerr != nil {
			return errors.Join(err, fmt.Errorf("withdraw endpoint %.12s: %w", id, uerr))
		}
		err = errors.Join(err, d.core.local.dropEndpoint(id))
	}
	d.core.poke()
	return errors.Join(err, d.core.alloc.Unbind(id), freeBesides(d.core.alloc, e))
}

// collectEndpoint removes an endpoint that Docker has forgotten, and its addresses
// with it, which Docker will not release any more.
func (d *endpoints) collectEndpoint(ctx context.Context, id string) error {
	d.core.mu.Lock()
	addrs := d.core.local.endpoints[id].addrs()
	d.core.mu.Unlock()
	err := d.removeEndpoint(ctx, id)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		err = errors.Join(err, d.core.alloc.Release(a))
	}
	return err
}

// EndpointInfo is Driver.EndpointInfo.
func (d *endpoints) EndpointInfo(_ context.Context, r *network.InfoRequest) (*network.InfoResponse, error) {
	e, _, err := d.core.endpoint(r.NetworkID, r.EndpointID)
	if err != nil {
		return nil, err
	}
	host, _ := ifnames(e.ID)
	value := map[string]string{"interface": host, "mac": e.MAC}
	for _, a := range e.addrs() {
		value[map[bool]string{false: "address", true: "address6"}[a.Is6()]] = a.String()
	}
	return &network.InfoResponse{Value: value}, nil
}
