// Package standin answers Docker's calls where no agent does: for one that has ended, by a process of its own (the deputy), for one
// that cannot run, and for a host that has left.
package standin

import (
	"context"
	"log/slog"

	"github.com/grapevine-net/grapevine/driver"
	"github.com/grapevine-net/grapevine/host/plugin"
	"github.com/grapevine-net/grapevine/ipam"
)

// makingCalls are those by which Docker wants something made, and removalCalls those of what goes.
var (
	makingCalls = map[plugin.Driver][]string{
		plugin.Network: {"GwAllocCheck", "CreateNetwork", "CreateEndpoint", "EndpointOperInfo", "Join", "ProgramExternalConnectivity"},
		plugin.IPAM:    {"RequestPool", "RequestAddress"},
	}
	removalCalls = map[plugin.Driver][]string{
		plugin.Network: {"DeleteNetwork", "DeleteEndpoint", "Leave", "RevokeExternalConnectivity"},
		plugin.IPAM:    {"ReleasePool", "ReleaseAddress"},
	}
)

// Farewells answers Docker: what it removes is gone, and nothing is made, for the reason given.
func Farewells(why error, log *slog.Logger) *plugin.Server {
	s := plugin.New(log)
	describe(s)
	refuse(s, makingCalls, why)
	// An empty body, of a retry, is as good: there is nothing to find.
	handle(s, removalCalls, func(context.Context) (*driver.Empty, error) { return &driver.Empty{}, nil })
	return s
}

// Refusals answers Docker: the drivers are there, and no call works, for the reason given.
func Refusals(why error, log *slog.Logger) *plugin.Server {
	s := plugin.New(log)
	describe(s)
	refuse(s, makingCalls, why)
	refuse(s, removalCalls, why)
	return s
}

// describe answers what the drivers are.
func describe(s *plugin.Server) {
	plugin.HandleNoBody(s, plugin.Network, "GetCapabilities", driver.GetCapabilities)
	plugin.HandleNoBody(s, plugin.IPAM, "GetCapabilities", new(ipam.Driver).GetCapabilities)
	plugin.HandleNoBody(s, plugin.IPAM, "GetDefaultAddressSpaces", new(ipam.Driver).GetDefaultAddressSpaces)
}

// handle answers all calls of a list alike, whatever is in them.
func handle(s *plugin.Server, calls map[plugin.Driver][]string, answer func(context.Context) (*driver.Empty, error)) {
	for d, methods := range calls {
		for _, method := range methods {
			plugin.HandleNoBody(s, d, method, answer)
		}
	}
}

// refuse answers calls with an error.
func refuse(s *plugin.Server, calls map[plugin.Driver][]string, err error) {
	for d, methods := range calls {
		for _, method := range methods {
			plugin.Handle(s, d, method, func(context.Context, *struct{}) (*struct{}, error) { return nil, err })
		}
	}
}
