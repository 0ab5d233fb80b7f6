// Command demo shows grapevine at work: three Docker hosts on this machine, one
// network over them. It says what it does, step by step, and leaves the machine as
// it was; -keep FILE leaves the hosts running, says how to look around, and notes in the
// file what is to be ended.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/grapevine-net/grapevine/tests/lab"
)

func main() {
	lab.Init()
	keep := flag.String("keep", "", "leave the hosts running, and add the lab's name to this file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d := &demo{out: os.Stdout, keep: *keep}
	if err := d.run(ctx); err != nil {
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called; the step has said why
	}
}

// steps are what the demo shows, in order.
func (d *demo) steps() []step {
	return []step{
		{"start three Docker hosts, each with a dockerd of its own", d.startHosts},
		{"start an agent on each; they find each other", d.startAgents},
		{"host1 creates the network blue; it appears on all three", d.createBlue},
		{"a container on each host", d.runContainers},
		{"every container reaches every other one by its address", d.mesh},
		{"a container of a second network, red, reaches none of them", d.isolation},
		{"names are known on all hosts, and to the network's own containers only", d.names},
		{"a container of a VNID 0 network reaches all, and all reach it", d.global},
		{fmt.Sprintf("the outside (%s) is reached through NAT", lab.OutsideAddr), d.outside},
		{"grapevine status", d.status},
	}
}
