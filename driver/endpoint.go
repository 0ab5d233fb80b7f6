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
	*core
	*publisher
	*labels
	*networks
}

// CreateEndpoint implements NetworkDriver.CreateEndpoint: the address becomes
// the endpoint's, and its record goes to the cluster, both durable on return. Of
// the interface only what the request left open is returned, or Docker rolls back.
func (d *endpoints) CreateEndpoint(ctx context.Context, r *network.CreateEndpointRequest) (*network.CreateEndpointResponse, error) {
	if err := d.takeUp(ctx, r.NetworkID); err != nil {
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
	if err := d.keeping(ctx, e.Network, func() error { return d.bind(ctx, e) }); err != nil {
		return nil, err
	}
	if err := d.addEndpoint(e); err != nil {
		return nil, errors.Join(err, d.unbind(e))
	}
	return reply, nil
}

// bind makes all of the endpoint's addresses its own, or none.
func (d *endpoints) bind(ctx context.Context, e localEndpoint) error {
	n, err := d.network(e.Network)
	if err != nil {
		return err
	}
	if err := d.leaseBesides(ctx, n, e); err != nil {
		return errors.Join(err, d.unbind(e))
	}
	for _, a := range e.all() {
		p, _, _ := n.subnetOf(a)
		if err := d.alloc.Bind(p, a, e.ID); err != nil {
			return errors.Join(err, d.unbind(e))
		}
	}
	return nil
}

// unbind makes none of its addresses the endpoint's. Docker gives those back that it asked for.
func (d *endpoints) unbind(e localEndpoint) error {
	return errors.Join(d.alloc.Unbind(e.ID), freeBesides(d.alloc, e))
}

// parseEndpoint reads the request; given says that it has a MAC address.
func (d *endpoints) parseEndpoint(r *network.CreateEndpointRequest) (e localEndpoint, given bool, err error) {
	if err := checkEndpointID(r.EndpointID); err != nil {
		return e, false, err
	}
	n, err := d.network(r.NetworkID)
	if err != nil {
		return e, false, err
	}
	if r.Interface == nil || r.Interface.Address == "" && r.Interface.AddressIPv6 == "" {
		return e, false, errors.New("the endpoint has no address; the network's IPAM driver must be grapevine's")
	}
	e = localEndpoint{ID: r.EndpointID, Network: n.ID, Created: d.cfg.Now()}
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
	d.mu.Lock()
	defer d.mu.Unlock()
	n, ok := d.local.networks[e.Network]
	if !ok {
		return fmt.Errorf("network %.12s was removed meanwhile", e.Network)
	}
	if old, again := d.local.endpoints[e.ID]; again {
		e.Joined, e.Sandbox, e.Ports, e.Created = old.Joined, old.Sandbox, old.Ports, old.Created
	}
	if err := d.local.setEndpoint(e); err != nil {
		return err
	}
	_, err := d.replica.Update(func(tx *replica.Tx) error {
		if err := announce(tx, d.cfg.Self, n, n.subnets(d.cfg.Self), false); err != nil {
			return err
		}
		use(tx, d.cfg.Self, n.Name)
		rec := cluster.Endpoint{ID: e.ID, Network: n.Name, Addrs: e.all(), Besides: len(e.Besides), MAC: e.MAC, Host: d.cfg.Self, Egress: e.Egress, Ingress: e.Ingress}
		if old, live := cluster.Get[cluster.Endpoint](tx.Snapshot(), e.ID); live {
			old.Network, old.Addrs, old.Besides, old.MAC, old.Egress, old.Ingress = rec.Network, rec.Addrs, rec.Besides, rec.MAC, rec.Egress, rec.Ingress
			rec = old
		}
		_ = tx.Put(rec) // Update reports it
		return nil
	})
	if err != nil {
		return errors.Join(fmt.Errorf("announce endpoint %.12s: %w", e.ID, err), d.local.dropEndpoint(e.ID))
	}
	return nil
}

// DeleteEndpoint implements NetworkDriver.DeleteEndpoint. Docker forgets the
// endpoint whatever is returned: one whose end cannot be stored here is collected when it is
// missing in Docker's lists. One that is gone is no error.
func (d *endpoints) DeleteEndpoint(ctx context.Context, r *network.DeleteEndpointRequest) (*Empty, error) {
	err := d.removeEndpoint(ctx, r.EndpointID)
	if err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.deleteLost = d.cfg.Now()
	}
	return &Empty{}, err
}

func (d *endpoints) removeEndpoint(ctx context.Context, id string) error {
	err := d.unplug(ctx, id)
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.local.endpoints[id]
	if ok {
		_, uerr := d.replica.Update(func(tx *replica.Tx) error {
			tx.Delete(cluster.Endpoint{ID: id}.Key())
			return nil
		})
		if uerr != nil {
			return errors.Join(err, fmt.Errorf("withdraw endpoint %.12s: %w", id, uerr))
		}
		err = errors.Join(err, d.local.dropEndpoint(id))
	}
	d.poke()
	return errors.Join(err, d.alloc.Unbind(id), freeBesides(d.alloc, e))
}

// collectEndpoint removes an endpoint that Docker has forgotten, and its addresses
// with it, which Docker will not release any more.
func (d *endpoints) collectEndpoint(ctx context.Context, id string) error {
	d.mu.Lock()
	addrs := d.local.endpoints[id].addrs()
	d.mu.Unlock()
	err := d.removeEndpoint(ctx, id)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		err = errors.Join(err, d.alloc.Release(a))
	}
	return err
}

// EndpointInfo implements NetworkDriver.EndpointOperInfo.
func (d *endpoints) EndpointInfo(_ context.Context, r *network.InfoRequest) (*network.InfoResponse, error) {
	e, _, err := d.endpoint(r.NetworkID, r.EndpointID)
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
