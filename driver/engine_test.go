package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/container"
	dockernet "github.com/docker/docker/api/types/network"
	dockeripam "github.com/docker/go-plugins-helpers/ipam"
	"github.com/docker/go-plugins-helpers/network"

	"github.com/grapevine-net/grapevine/ipam"
)

// engine is the wire side of a Docker Engine: it answers the API on a unix socket
// and calls the plugin in the order in which Docker does.
type engine struct {
	store string // another one after Docker's files were wiped
	t     *testing.T
	rig   *rig
	host  string

	mu         sync.Mutex
	networks   map[string]dockernet.Inspect
	containers map[string]container.Summary
	starting   []string          // endpoints of containers that are not listed with them yet
	aliases    []string          // of every endpoint, for those who inspect
	linkLocal  []string          // likewise
	failed     map[string]string // why containers with a restart policy do not run, by name
	refusals   map[string]int    // how often containers cannot be started, by name
	started    []string          // names of containers that were started by the API
	locked     chan struct{}     // not nil: inspecting waits for its end
	made       int
	meanwhile  func() // called once, between the requests of a network's creation
	full       bool   // the disk, which takes no network, nor that one goes
	undeleted  string // the network whose deletion has failed
}

func newEngine(t *testing.T) *engine {
	e := &engine{
		t: t, host: "unix://" + filepath.Join(t.TempDir(), "docker.sock"),
		networks: map[string]dockernet.Inspect{}, containers: map[string]container.Summary{},
	}
	l, err := net.Listen("unix", strings.TrimPrefix(e.host, "unix://"))
	check(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(e.api)}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	e.rig = newRig(t, e.host)
	e.rig.core.cfg.DriverName = "grapevine:latest"
	return e
}

func (e *engine) api(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if strings.HasPrefix(path, "/v1.") {
		path = path[strings.Index(path[1:], "/")+1:]
	}
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	w.Header().Set("Api-Version", "1.41")
	switch {
	case path == "/_ping":
	case path == "/networks":
		answer(200, e.list())
	case path == "/containers/json":
		e.mu.Lock()
		defer e.mu.Unlock()
		list := []container.Summary{}
		for _, c := range e.containers {
			list = append(list, c)
		}
		answer(200, list)
	case strings.HasPrefix(path, "/containers/") && strings.HasSuffix(path, "/start"):
		e.mu.Lock()
		defer e.mu.Unlock()
		name := strings.TrimSuffix(strings.TrimPrefix(path, "/containers/c"), "/start")
		if e.refusals[name] > 0 {
			e.refusals[name]--
			e.failed[name] = "the disk is full now"
			answer(500, map[string]string{"message": "remote: not yet"})
			return
		}
		e.started = append(e.started, name)
		c := e.containers[name]
		c.State = "running"
		e.containers[name] = c
		w.WriteHeader(http.StatusNoContent)
	case strings.HasPrefix(path, "/containers/"):
		e.inspect(answer, strings.TrimSuffix(strings.TrimPrefix(path, "/containers/"), "/json"))
	case path == "/networks/create":
		var req dockernet.CreateRequest
		_ = json.NewDecoder(r.Body).Decode(&req)
		id, err := e.create(req)
		if err != nil {
			answer(500, map[string]string{"message": err.Error()})
			return
		}
		answer(201, map[string]string{"Id": id})
	case r.Method == http.MethodGet && strings.HasPrefix(path, "/networks/"):
		e.mu.Lock()
		defer e.mu.Unlock()
		n := e.networks[strings.TrimPrefix(path, "/networks/")]
		n.Containers = map[string]dockernet.EndpointResource{}
		for _, id := range e.starting {
			name := strings.TrimLeft(id, "0 ") // see run
			n.Containers["c"+name] = dockernet.EndpointResource{Name: name, EndpointID: id}
		}
		answer(200, n)
	case r.Method == http.MethodDelete && e.full: // it is on the disk, and not in the list
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.networks, strings.TrimPrefix(path, "/networks/"))
		answer(500, map[string]string{"message": "error marking network for deletion: no space left on device"})
	case r.Method == http.MethodDelete:
		e.remove(strings.TrimPrefix(path, "/networks/"))
		w.WriteHeader(http.StatusNoContent)
	default:
		answer(404, map[string]string{"message": "page not found"})
	}
}

// inspect is GET /containers/ID/json.
func (e *engine) inspect(answer func(int, any), id string) {
	e.mu.Lock()
	locked := e.locked
	e.mu.Unlock()
	if locked != nil {
		<-locked
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.containers {
		if c.ID != id {
			continue
		}
		r := container.InspectResponse{
			ContainerJSONBase: &container.ContainerJSONBase{ID: c.ID, Name: c.Names[0], State: &container.State{}, HostConfig: &container.HostConfig{}},
			NetworkSettings:   &container.NetworkSettings{Networks: map[string]*dockernet.EndpointSettings{}},
		}
		if why, ok := e.failed[c.Names[0][1:]]; ok {
			r.State.Error, r.HostConfig.RestartPolicy.Name = why, container.RestartPolicyAlways
		}
		for name, at := range c.NetworkSettings.Networks {
			r.NetworkSettings.Networks[name] = &dockernet.EndpointSettings{
				EndpointID: at.EndpointID, IPAMConfig: &dockernet.EndpointIPAMConfig{LinkLocalIPs: e.linkLocal}, Aliases: e.aliases, DNSNames: append([]string{c.Names[0][1:]}, e.aliases...),
			}
		}
		answer(200, r)
		return
	}
	answer(404, map[string]string{"message": "No such container"})
}

func (e *engine) list() []dockernet.Inspect {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := []dockernet.Inspect{{ID: "b", Name: "bridge", Driver: "bridge"}, {ID: "n" + e.store, Name: "none", Driver: "null"}}
	for _, n := range e.networks {
		list = append(list, n)
	}
	return list
}

func isIPv6(c dockernet.IPAMConfig) bool { return strings.Contains(c.Subnet, ":") }

// create is docker network create.
func (e *engine) create(req dockernet.CreateRequest) (string, error) {
	ctx := context.Background()
	if req.IPAM == nil || len(req.IPAM.Config) == 0 {
		req.IPAM = &dockernet.IPAM{Config: []dockernet.IPAMConfig{{}}}
	}
	e.mu.Lock()
	e.made++
	id := fmt.Sprintf("%064x", e.made)
	e.mu.Unlock()
	call := &network.CreateNetworkRequest{NetworkID: id, Options: map[string]any{}}
	opts := map[string]any{}
	for k, v := range req.Options {
		opts[k] = v
	}
	call.Options[optGeneric], call.Options[optInternal] = opts, req.Internal
	pools := slices.Clone(req.IPAM.Config)
	if six := req.EnableIPv6 != nil && *req.EnableIPv6; six && !slices.ContainsFunc(pools, isIPv6) {
		pools = append(pools, dockernet.IPAMConfig{})
	}
	begun := map[string]string{} // gateways, by pool
	for i, c := range pools {
		six := isIPv6(c) || c.Subnet == "" && i > 0
		pool, err := e.rig.ipam.RequestPool(ctx, &dockeripam.RequestPoolRequest{AddressSpace: ipam.AddressSpace, Pool: c.Subnet, SubPool: c.IPRange, V6: six})
		if err != nil {
			return "", err
		}
		gw, err := e.rig.ipam.RequestAddress(ctx, &dockeripam.RequestAddressRequest{
			PoolID: pool.PoolID, Address: c.Gateway, Options: map[string]string{"RequestAddressType": "com.docker.network.gateway"},
		})
		if err != nil {
			return "", err
		}
		begun[pool.PoolID], _, _ = strings.Cut(gw.Address, "/")
		data := &network.IPAMData{AddressSpace: ipam.AddressSpace, Pool: pool.Pool, Gateway: gw.Address}
		if six {
			call.IPv6Data = append(call.IPv6Data, data)
		} else {
			call.IPv4Data = append(call.IPv4Data, data)
		}
	}
	if meanwhile := e.meanwhile; meanwhile != nil {
		e.meanwhile = nil
		meanwhile()
	}
	if _, err := e.rig.CreateNetwork(ctx, call); err != nil {
		for _, c := range call.IPv4Data {
			_, _ = e.rig.ipam.ReleasePool(ctx, &dockeripam.ReleasePoolRequest{PoolID: c.Pool})
		}
		return "", err
	}
	if e.full {
		_, err := e.rig.DeleteNetwork(ctx, &network.DeleteNetworkRequest{NetworkID: id})
		check(e.t, err)
		for pool, gateway := range begun {
			_, err := e.rig.ipam.ReleaseAddress(ctx, &dockeripam.ReleaseAddressRequest{PoolID: pool, Address: gateway})
			check(e.t, err)
			_, err = e.rig.ipam.ReleasePool(ctx, &dockeripam.ReleasePoolRequest{PoolID: pool})
			check(e.t, err)
		}
		return "", errors.New("no space left on device")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.networks[id] = dockernet.Inspect{ID: id, Name: req.Name, Driver: "grapevine:latest", Labels: req.Labels, Options: req.Options, Internal: req.Internal, Attachable: req.Attachable, IPAM: *req.IPAM}
	return id, nil
}

// remove is docker network rm: the network is out of the list before the call.
func (e *engine) remove(id string) {
	e.mu.Lock()
	delete(e.networks, id)
	e.mu.Unlock()
	_, err := e.rig.DeleteNetwork(context.Background(), &network.DeleteNetworkRequest{NetworkID: id})
	if !e.rig.life.Over { // an error is nothing to docker
		check(e.t, err)
	}
}

func (e *engine) named(name string) (dockernet.Inspect, bool) {
	for _, n := range e.list() {
		if n.Name == name {
			return n, true
		}
	}
	return dockernet.Inspect{}, false
}

// run is docker run; the container is named after the endpoint.
func (e *engine) run(networkID, name string) (endpoint string) {
	e.t.Helper()
	endpoint, err := e.start(networkID, name)
	check(e.t, err)
	return endpoint
}

func (e *engine) start(networkID, name string) (endpoint string, err error) {
	if endpoint, err = e.endpoint(networkID, name); err != nil {
		return "", err
	}
	if _, err := e.rig.Join(context.Background(), &network.JoinRequest{NetworkID: networkID, EndpointID: endpoint}); err != nil {
		return "", err
	}
	e.container(networkID, name, endpoint)
	return endpoint, nil
}

// endpoint makes one which is not joined yet.
func (e *engine) endpoint(networkID, name string) (endpoint string, err error) {
	ctx := context.Background()
	n := e.rig.core.local.networks[networkID]
	face := &network.EndpointInterface{}
	for _, p := range n.Prefixes {
		addr, err := e.rig.ipam.RequestAddress(ctx, &dockeripam.RequestAddressRequest{PoolID: ipam.PoolID{Prefix: p}.String()})
		if err != nil {
			return "", err
		}
		if p.Addr().Is4() {
			face.Address = addr.Address
		} else {
			face.AddressIPv6 = addr.Address
		}
	}
	endpoint = fmt.Sprintf("%064s", name)
	_, err = e.rig.CreateEndpoint(ctx, &network.CreateEndpointRequest{NetworkID: networkID, EndpointID: endpoint, Interface: face})
	return endpoint, err
}

func (e *engine) container(networkID, name, endpoint string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.containers[name] = container.Summary{
		ID: "c" + name, Names: []string{"/" + name}, Labels: map[string]string{"com.docker.compose.service": "svc"},
		NetworkSettings: &container.NetworkSettingsSummary{Networks: map[string]*dockernet.EndpointSettings{
			e.networks[networkID].Name: {NetworkID: networkID, EndpointID: endpoint},
		}},
	}
}

// stop ends a container's endpoint and keeps the container; rm is to follow.
func (e *engine) stop(networkID, name, endpoint string) {
	ctx := context.Background()
	_, err := e.rig.Leave(ctx, &network.LeaveRequest{NetworkID: networkID, EndpointID: endpoint})
	check(e.t, err)
	_, err = e.rig.DeleteEndpoint(ctx, &network.DeleteEndpointRequest{NetworkID: networkID, EndpointID: endpoint})
	check(e.t, err)
	e.container(networkID, name, "")
}

func (e *engine) rm(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.containers, name)
}
