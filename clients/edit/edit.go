// Package edit is what people do with clients: add, list and remove. A client is added at the host to which it will
// come, and removed there.
package edit

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/clients"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/replica"
)

// Replica is the agent's copy of the cluster's state; *replica.Replica is one.
type Replica interface {
	Snapshot() *cluster.Snapshot
	Update(func(*replica.Tx) error) (rev uint64, err error)
}

// Addresses are this host's to hand out; *ipam.Allocator has them.
type Addresses interface {
	Address(ctx context.Context, subnet, limit netip.Prefix, want netip.Addr) (netip.Addr, error)
	Bind(subnet netip.Prefix, addr netip.Addr, endpoint string) error
	Unbind(endpoint string) error
	Release(addr netip.Addr) error
}

// Door is what lets clients in (package clients/sandbox).
type Door interface {
	// Ensure returns when it is as the records say.
	Ensure(context.Context) error
	// Public is the key that it has for clients.
	Public() ([cluster.WireGuardKeySize]byte, error)
	// Failed says why a client is not let in, nil if it is.
	Failed(endpointID string) error
	// Look looks at who may be let in now, which Lets tells then.
	Look()
	// Lets reports whether whoever has that key may be let in, when it was heard last, and where; zero: never.
	Lets(key []byte) (may bool, seen time.Time, at netip.AddrPort)
}

// Desk is where clients are changed and looked at.
type Desk struct {
	Self      cluster.NodeID
	Replica   Replica
	Addresses Addresses
	Door      Door
	At        netip.AddrPort // where clients find this host, if nobody says otherwise
	MTU       func(network string) int
}

// names are what a client may be called: what a host may in DNS.
var names = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Add makes a client, which is let in when it returns.
func (d Desk) Add(ctx context.Context, r api.AddClientRequest) (api.AddedClient, error) {
	e, err := d.read(r)
	if err != nil {
		return api.AddedClient{}, api.Errorf(http.StatusBadRequest, "add client %.80s: %v", r.Name, err)
	}
	subnets, err := d.free(d.Replica.Snapshot(), e)
	if err != nil {
		return api.AddedClient{}, err
	}
	public, err := d.Door.Public()
	if err != nil {
		return api.AddedClient{}, fmt.Errorf("add client %s: %w", e.Name, err)
	}
	if slices.Equal(e.Client, public[:]) {
		return api.AddedClient{}, api.Errorf(http.StatusBadRequest, "add client %s: that public key is this host's own: give the client's, or none, and it gets one", e.Name)
	}
	if err := d.make(ctx, &e, subnets); err != nil {
		return api.AddedClient{}, errors.Join(err, d.end(context.WithoutCancel(ctx), e))
	}
	added := api.AddedClient{
		Name: e.Name, Network: e.Network, MTU: clients.MTU(d.MTU(e.Network)), Key: base64.StdEncoding.EncodeToString(public[:]), Endpoint: r.Endpoint,
	}
	if added.Endpoint == "" {
		added.Endpoint = d.At.String()
	}
	for i, s := range subnets {
		added.Addrs = append(added.Addrs, netip.PrefixFrom(e.Addrs[i], e.Addrs[i].BitLen()))
		if s.Gateway.IsValid() {
			added.DNS = append(added.DNS, s.Gateway)
		}
	}
	n, _ := cluster.Get[cluster.Network](d.Replica.Snapshot(), e.Network)
	for _, s := range clients.Subnets(d.Replica.Snapshot(), n) {
		added.Allowed = append(added.Allowed, s.Prefix)
	}
	return added, nil
}

// make leases addresses, writes the record and lets the client in.
func (d Desk) make(ctx context.Context, e *cluster.Endpoint, subnets []cluster.Subnet) error {
	for _, s := range subnets {
		addr, err := d.Addresses.Address(ctx, s.Prefix, netip.Prefix{}, netip.Addr{})
		if err == nil {
			e.Addrs = append(e.Addrs, addr)
			err = d.Addresses.Bind(s.Prefix, addr, e.ID)
		}
		if err != nil {
			return fmt.Errorf("add client %s to network %s: %w", e.Name, e.Network, err)
		}
	}
	e.MAC = clients.MAC(e.Addrs[0]).String()
	n, _ := cluster.Get[cluster.Network](d.Replica.Snapshot(), e.Network)
	e.Made = n.Made
	_, err := d.Replica.Update(func(tx *replica.Tx) error {
		if _, err := d.free(tx.Snapshot(), *e); err != nil {
			return err // somebody made one meanwhile
		}
		return tx.Put(*e)
	})
	if _, said := errors.AsType[*api.Error](err); err != nil && !said {
		err = fmt.Errorf("add client %s to network %s: %w", e.Name, e.Network, err)
	}
	if err != nil {
		return err
	}
	_ = d.Door.Ensure(ctx) // others may not come in; status says so
	if err := d.Door.Failed(e.ID); err != nil {
		return fmt.Errorf("add client %s to network %s: %w", e.Name, e.Network, err)
	}
	return nil
}

// end undoes make. Addresses are free when nobody can come by them any more.
func (d Desk) end(ctx context.Context, e cluster.Endpoint) error {
	_, err := d.Replica.Update(func(tx *replica.Tx) error {
		if _, there := cluster.Get[cluster.Endpoint](tx.Snapshot(), e.ID); there {
			tx.Delete(e.Key())
		}
		return nil
	})
	if err != nil {
		return err
	}
	_ = d.Door.Ensure(ctx) // it says by itself what is wrong with others
	d.Door.Look()
	if may, _, _ := d.Door.Lets(e.Client); may {
		return nil // the addresses are free once it is let in no more: the driver collects them
	}
	errs := []error{d.Addresses.Unbind(e.ID)}
	for _, a := range e.Addrs {
		errs = append(errs, d.Addresses.Release(a))
	}
	return errors.Join(errs...)
}

// read returns the client that is asked for, without addresses.
func (d Desk) read(r api.AddClientRequest) (e cluster.Endpoint, err error) {
	switch {
	case !names.MatchString(r.Name):
		return e, errors.New("its name is to have small letters, digits and dashes only, as laptop-2")
	case r.Network == "":
		return e, errors.New("it is of no network: add --network NAME")
	}
	key, err := base64.StdEncoding.DecodeString(r.PublicKey)
	if err != nil || len(key) != cluster.WireGuardKeySize {
		return e, fmt.Errorf("%.60q is no public key of WireGuard: give what `wg pubkey` says, 44 characters", r.PublicKey)
	}
	if slices.Equal(key, make([]byte, cluster.WireGuardKeySize)) {
		return e, errors.New("a public key of zeros alone is nobody's: give what `wg pubkey` says")
	}
	if r.Endpoint != "" {
		if err := checkEndpoint(r.Endpoint); err != nil {
			return e, err
		}
	}
	id := make([]byte, 32)
	rand.Read(id)
	e = cluster.Endpoint{
		ID: hex.EncodeToString(id), Network: r.Network, Host: d.Self, Name: r.Name, Client: key,
		Labels: map[string]string{cluster.ClientLabel: r.Name}, Labelled: true,
	}
	e.Container = e.ID // what is asked for by ID is the endpoint
	return e, nil
}

// checkEndpoint refuses what WireGuard's own file cannot have.
func checkEndpoint(at string) error {
	host, port, ok := cutPort(at)
	if !ok || host == "" || port == "" || strings.Trim(port, "0123456789") != "" || strings.ContainsAny(at, " \t\r\n#") {
		return fmt.Errorf("--endpoint %.80q is not HOST:PORT, as vpn.example.com:7949 or [2001:db8::1]:7949", at)
	}
	return nil
}

func cutPort(at string) (host, port string, ok bool) {
	i := strings.LastIndexByte(at, ':')
	if i < 0 {
		return "", "", false
	}
	host, port = at[:i], at[i+1:]
	if strings.Contains(host, ":") && !(strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")) {
		return "", "", false
	}
	return host, port, true
}

// free returns a subnet of each family that the network has. It is an error if there is no such network, or if the name
// or the key is another one's.
func (d Desk) free(snap *cluster.Snapshot, e cluster.Endpoint) (subnets []cluster.Subnet, err error) {
	n, there := cluster.Get[cluster.Network](snap, e.Network)
	if !there || n.Removed {
		return nil, api.Errorf(http.StatusNotFound, "add client %s: there is no network %.80s: see `grapevine networks`", e.Name, e.Network)
	}
	for _, o := range clients.All(snap) {
		switch {
		case o.ID == e.ID:
		case o.Name == e.Name:
			return nil, api.Errorf(http.StatusConflict, "add client %s: there is one of that name, on network %s, added at host %s: give another name, or remove it there: grapevine client remove %s", e.Name, o.Network, snap.HostName(o.Host), o.Name)
		case slices.Equal(o.Client, e.Client):
			return nil, api.Errorf(http.StatusConflict, "add client %s: client %s has that public key: a client has one of its own for each network", e.Name, o.Name)
		}
	}
	for o := range cluster.All[cluster.Endpoint](snap) {
		if o.Network == e.Network && o.ID != e.ID && (o.Name == e.Name || slices.Contains(o.AllAliases(), e.Name)) {
			return nil, api.Errorf(http.StatusConflict, "add client %s: a container on network %s has that name, on host %s: give another one", e.Name, e.Network, snap.HostName(o.Host))
		}
	}
	for _, s := range clients.Subnets(snap, n) {
		if !slices.ContainsFunc(subnets, func(have cluster.Subnet) bool { return have.Prefix.Addr().Is4() == s.Prefix.Addr().Is4() }) {
			subnets = append(subnets, s)
		}
	}
	if len(subnets) == 0 {
		return nil, api.Errorf(http.StatusNotFound, "add client %s: this host knows no subnet of network %.80s yet: try again", e.Name, e.Network)
	}
	return subnets, nil
}

// List lists the clients of the cluster. When one was seen its own host knows.
func (d Desk) List(context.Context) ([]api.NetworkClient, error) {
	snap := d.Replica.Snapshot()
	d.Door.Look()
	list := []api.NetworkClient{}
	for _, e := range clients.All(snap) {
		c := api.NetworkClient{
			Name: e.Name, Network: e.Network, Host: snap.HostName(e.Host), Here: e.Host == d.Self, Addrs: e.Addrs,
			Key: base64.StdEncoding.EncodeToString(e.Client), Lost: clients.Lost(snap, e),
		}
		if c.Here {
			_, c.Seen, c.At = d.Door.Lets(e.Client)
		}
		list = append(list, c)
	}
	return list, nil
}

// Remove removes a client, which is not let in any more when it returns.
func (d Desk) Remove(ctx context.Context, r api.RemoveClientRequest) (api.Done, error) {
	snap := d.Replica.Snapshot()
	all := slices.DeleteFunc(clients.All(snap), func(e cluster.Endpoint) bool { return e.Name != r.Name })
	if len(all) == 0 {
		return api.Done{}, api.Errorf(http.StatusNotFound, "remove client %.80s: there is none of that name: see `grapevine client list`", r.Name)
	}
	at := slices.IndexFunc(all, func(e cluster.Endpoint) bool { return e.Host == d.Self })
	if at < 0 {
		host := snap.HostName(all[0].Host)
		return api.Done{}, api.Errorf(http.StatusConflict, "remove client %s: it was added at host %s, which lets it in: run this there (grapevine -H ssh://root@%s client remove %s); if that host is gone for good, `grapevine forget %s`", r.Name, host, host, r.Name, host)
	}
	e := all[at]
	if err := d.end(ctx, e); err != nil {
		return api.Done{}, fmt.Errorf("remove client %s: %w", r.Name, err)
	}
	if may, _, _ := d.Door.Lets(e.Client); may {
		return api.Done{}, fmt.Errorf("remove client %s: WireGuard here does not answer, and may still let it in: the agent goes on trying; `grapevine status` says what is wrong", r.Name)
	}
	return api.Done{Text: fmt.Sprintf("client %s of network %s is removed: nothing of it passes any more", e.Name, e.Network)}, nil
}
