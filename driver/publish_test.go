package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/go-plugins-helpers/network"

	"github.com/grapevine-net/grapevine/driver/ports"
)

// hostPorts are the machine's ports.
type hostPorts struct{ *machine }

func (h hostPorts) Hold(b ports.Binding) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for o := range h.bound {
		if o.Proto == b.Proto && o.Host == b.Host {
			return nil // as package hold does
		}
		if o.Overlaps(b) {
			return &ports.TakenError{Binding: b, By: func() string { return "a socket" }}
		}
	}
	if h.foreign != 0 && b.Host.Port() == h.foreign {
		return &ports.TakenError{Binding: b, By: func() string { return "nginx (process 7)" }}
	}
	h.bound[b] = true
	return nil
}

func (h hostPorts) Release(b ports.Binding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.bound, b)
}

func (h hostPorts) Publish(_ context.Context, all []ports.Binding) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken != nil {
		return h.broken
	}
	h.led = slices.Clone(all)
	return nil
}

// portmap is what Docker sends for -p PORT:80 with each of the ports.
func portmap(hostPorts ...int) map[string]any {
	var list []any
	for _, p := range hostPorts {
		list = append(list, map[string]any{"Proto": 6.0, "IP": "", "Port": 80.0, "HostIP": "", "HostPort": float64(p), "HostPortEnd": float64(p)})
	}
	return map[string]any{ports.OptPortMap: list}
}

// program is Docker's call for -p.
func (e *engine) program(networkID, endpoint string, hostPorts ...int) error {
	_, err := e.rig.ProgramExternalConnectivity(e.t.Context(), &network.ProgramExternalConnectivityRequest{
		NetworkID: networkID, EndpointID: endpoint, Options: portmap(hostPorts...),
	})
	return err
}

// wantPorts compares what is held and led with "PORT:ADDRESS" for each.
func (e *engine) wantPorts(list ...string) {
	e.t.Helper()
	var want []string
	for _, p := range list {
		port, addr, _ := strings.Cut(p, ":")
		want = append(want, "held 0.0.0.0:"+port+"/tcp", fmt.Sprintf("led 0.0.0.0:%s/tcp to %s:80", port, addr))
	}
	var got []string
	for l := range strings.Lines(e.rig.machine.String()) {
		if l = strings.TrimSpace(l); strings.HasPrefix(l, "held") || strings.HasPrefix(l, "led") {
			got = append(got, l)
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		e.t.Errorf("the machine has ports\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestPublish(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	web, app := e.run(id, "web"), e.run(id, "app")
	e.look()
	for range 2 { // Docker repeats calls
		check(t, e.program(id, web, 8080, 8081))
		e.wantPorts("8080:10.128.0.2", "8081:10.128.0.2")
	}

	// One that is taken: nothing of the call stays.
	err := e.program(id, app, 8082, 8081)
	const want = "bind for 0.0.0.0:8081/tcp failed: port is already in use by container web; stop that, or publish another port of the host (-p OTHER:80)"
	if err == nil || err.Error() != want {
		t.Errorf("a port that is taken: %v", err)
	}
	if err := e.program(id, app, 8082, 8082); err == nil || !strings.Contains(err.Error(), "in use by another -p of the same container") {
		t.Errorf("the same port twice: %v", err)
	}
	e.rig.machine.foreign = 8083
	if err := e.program(id, app, 8083); err == nil || !strings.Contains(err.Error(), "in use by nginx (process 7)") {
		t.Errorf("a port of a process: %v", err)
	}
	e.wantPorts("8080:10.128.0.2", "8081:10.128.0.2")

	check(t, e.program(id, app, 8082))
	_, err = e.rig.RevokeExternalConnectivity(t.Context(), &network.RevokeExternalConnectivityRequest{NetworkID: id, EndpointID: web})
	check(t, err)
	e.wantPorts("8082:10.128.0.3")
	check(t, e.program(id, app, 8080)) // what web had
	e.wantPorts("8080:10.128.0.3")
	check(t, e.program(id, app))
	e.wantPorts()
}

// However a container ends, its ports end with it.
func TestPortsEnd(t *testing.T) {
	for name, end := range map[string]func(e *engine, id, ep string){
		"leave": func(e *engine, id, ep string) {
			_, err := e.rig.Leave(e.t.Context(), &network.LeaveRequest{NetworkID: id, EndpointID: ep})
			check(e.t, err)
		},
		"delete": func(e *engine, id, ep string) {
			_, err := e.rig.DeleteEndpoint(e.t.Context(), &network.DeleteEndpointRequest{NetworkID: id, EndpointID: ep})
			check(e.t, err)
		},
		"while no agent ran": func(e *engine, _, ep string) {
			host, _ := ifnames(ep)
			check(e.t, e.rig.machine.Delete(host))
			clear(e.rig.machine.bound)
			e.rig.reopen()
		},
		"unseen": func(e *engine, _, ep string) {
			host, _ := ifnames(ep)
			check(e.t, e.rig.machine.Delete(host))
			check(e.t, e.rig.publisher.lookAtPorts(e.t.Context()))
		},
		"back on the host": func(e *engine, id, ep string) {
			_, peer := ifnames(ep)
			e.rig.machine.links[peer] = "down"
			check(e.t, e.rig.publisher.lookAtPorts(e.t.Context()))
			e.wantPorts("8080:10.128.0.2") // about to start, for all one knows
			e.rig.now = e.rig.now.Add(time.Minute)
			e.starting = []string{ep} // on a slow host this takes its time
			check(e.t, e.rig.publisher.lookAtPorts(e.t.Context()))
			e.wantPorts("8080:10.128.0.2")
			next := e.run(id, strings.Repeat("b", 64))
			if err := e.program(id, next, 8080); err == nil || !strings.Contains(err.Error(), "in use by") {
				e.t.Errorf("somebody else wants the port of a container that is about to start: %v", err)
			}
			e.wantPorts("8080:10.128.0.2")
			e.starting = nil
			check(e.t, e.rig.publisher.lookAtPorts(e.t.Context()))
		},
		"unseen, and somebody wants the port": func(e *engine, id, ep string) {
			host, _ := ifnames(ep)
			check(e.t, e.rig.machine.Delete(host))
			next := e.run(id, strings.Repeat("b", 64))
			check(e.t, e.program(id, next, 8080))
			e.wantPorts("8080:10.128.0.3")
			check(e.t, e.program(id, next))
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t)
			id := e.user("blue")
			ep := e.run(id, "web")
			check(t, e.program(id, ep, 8080))
			e.wantPorts("8080:10.128.0.2")
			end(e, id, ep)
			e.wantPorts()
			if got := e.rig.Published(); len(got) != 0 {
				t.Errorf("noted: %v", got)
			}
		})
	}
}

// A new agent holds the ports again and finds the rules as they should be; what somebody
// took meanwhile it says, and takes back when it can.
func TestPortsOutliveTheAgent(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	ep := e.run(id, "web")
	check(t, e.program(id, ep, 8080, 8081))
	clear(e.rig.machine.bound) // its sockets went with it
	e.rig.machine.foreign = 8081
	e.rig.reopen()
	if got := e.rig.PortProblems(); len(got) != 1 || !strings.Contains(got[0], "0.0.0.0:8081/tcp") || !strings.Contains(got[0], "nginx") {
		t.Errorf("problems: %q", got)
	}
	if len(e.rig.machine.led) != 2 || len(e.rig.machine.bound) != 1 {
		t.Errorf("the machine has\n%s", e.rig.machine)
	}
	e.rig.machine.foreign = 0
	check(t, e.rig.publisher.lookAtPorts(t.Context()))
	if got := e.rig.PortProblems(); len(got) != 0 {
		t.Errorf("problems after they are gone: %q", got)
	}
	e.wantPorts("8080:10.128.0.2", "8081:10.128.0.2")
}

// Rules that cannot be made are an error that leaves nothing; those that cannot be
// removed are tried again.
func TestRulesFail(t *testing.T) {
	e := newEngine(t)
	id := e.user("blue")
	ep := e.run(id, "web")
	e.rig.machine.broken = errors.New("iptables is broken")
	if err := e.program(id, ep, 8080); err == nil || !strings.Contains(err.Error(), "iptables is broken") {
		t.Errorf("rules that cannot be made: %v", err)
	}
	e.wantPorts()
	if got := e.rig.Published(); len(got) != 0 {
		t.Errorf("noted: %v", got)
	}
	e.rig.machine.broken = nil
	check(t, e.program(id, ep, 8080))
	e.rig.machine.broken = errors.New("iptables is broken")
	if err := e.rig.publisher.unpublish(t.Context(), ep); err == nil {
		t.Error("no error though the rules are still there")
	}
	e.rig.machine.broken = nil
	check(t, e.rig.publisher.lookAtPorts(t.Context()))
	e.wantPorts()
}
