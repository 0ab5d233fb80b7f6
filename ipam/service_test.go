package ipam

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// TestServiceAddress: nobody else gets the address of a service: not by chance, not by asking for it, not with a share
// that is given away, and not where a host inherits it. When the service is removed, on whichever host, it is free.
func TestServiceAddress(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.hosts[0], w.hosts[1]
	subnet := netip.MustParsePrefix("10.128.9.0/29") // six addresses, one of them the gateway's
	_ = get(a.replica.Update(func(tx *replica.Tx) error {
		_ = tx.Put(cluster.Network{Name: "blue", VNID: 1})
		return tx.Put(cluster.Subnet{Prefix: subnet, Network: "blue", Gateway: netip.MustParseAddr("10.128.9.1")})
	}))(t)
	svc := cluster.Service{Network: "blue", Name: "web", Select: "web", Ports: []cluster.ServicePort{{Proto: "tcp", Port: 80, Target: 80}}}
	failed := errors.New("not written")
	if err := a.ServiceAddresses(context.Background(), []netip.Prefix{subnet}, func([]netip.Addr) error { return failed }); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if n := a.Held(); n != 0 {
		t.Errorf("%d leases after a service that was not written", n)
	}
	must(t, a.ServiceAddresses(context.Background(), []netip.Prefix{subnet}, func(addrs []netip.Addr) error {
		svc.Addrs = addrs
		_, err := a.replica.Update(func(tx *replica.Tx) error { return tx.Put(svc) })
		return err
	}))
	if n := a.Held(); n != 0 {
		t.Errorf("%d leases beside the service's record", n)
	}
	vip := svc.Addrs[0]
	w.spread()
	for _, h := range w.hosts { // b asks a for it
		if got, err := h.Address(context.Background(), subnet, netip.Prefix{}, vip); err == nil {
			t.Errorf("%s was handed out on host %s", got, h.id)
		}
	}
	if err := a.Bind(subnet, vip, "endpoint"); !errors.Is(err, ErrInUse) {
		t.Errorf("bound: %v", err)
	}
	given := 0
	for _, h := range []*host{b, a, b, a, b, a, b, a} {
		got, err := h.Address(context.Background(), subnet, netip.Prefix{}, netip.Addr{})
		if err != nil {
			continue
		}
		if given++; got == vip {
			t.Errorf("host %s handed out the service's address", h.id)
		}
	}
	if given != 4 {
		t.Errorf("%d addresses handed out, want the other 4", given)
	}
	_ = get(b.replica.Update(func(tx *replica.Tx) error { tx.Delete(svc.Key()); return nil }))(t)
	w.spread()
	if got, err := b.Address(context.Background(), subnet, netip.Prefix{}, netip.Addr{}); err != nil || got != vip {
		t.Errorf("removed: %s, %v, want %s", got, err, vip)
	}
}
