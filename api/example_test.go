package api_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/grapevine-net/grapevine/api"
)

// An agent answers on a unix socket, and a client asks it. What this agent has no answer to is an error for people.
func ExampleClient() {
	dir, err := os.MkdirTemp("", "api")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "api.sock")
	listener, err := new(net.ListenConfig).Listen(context.Background(), "unix", socket)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() {
		served <- api.Serve(ctx, listener, api.Handlers{
			Networks: func(context.Context) ([]api.Network, error) { return []api.Network{{Name: "blue", VNID: 7}}, nil },
			Absent:   api.Errorf(503, "this agent waits for a cluster"),
		})
	}()

	client := api.NewClient(socket)
	networks, err := client.Networks(ctx)
	fmt.Println(networks[0].Name, networks[0].VNID, err)
	_, err = client.Nodes(ctx)
	fmt.Println(err)

	stop()
	fmt.Println(<-served)
	// Output:
	// blue 7 <nil>
	// this agent waits for a cluster
	// <nil>
}
