package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// round is what is done before the hosts have to agree again: commands, faults that strike
// meanwhile and are in force together for a while, and the end of all faults.
type round struct {
	faults   []strike
	commands []command
	hold     time.Duration // from the last strike to the faults' end
}

// strike is a fault on hosts.
type strike struct {
	fault string
	on    []int         // hosts, from 0
	after time.Duration // from the first command
}

// lasts is the time from the first command to the faults' end.
func (r round) lasts() time.Duration {
	last := r.hold
	for _, s := range r.faults {
		last = max(last, s.after+r.hold)
	}
	return last
}

// command starts or removes a container, or a network with a container.
type command struct {
	verb    string // run, rm, network, or network-rm
	host    int
	name    string // of the container
	network string
}

// planner draws rounds: what it draws depends on nothing but the seed, the number of
// hosts and how many rounds came before.
type planner struct {
	rand  *rand.Rand
	hosts int
	table []fault
	made  int       // containers so far
	there []command // verbs run and network, not yet undone
}

func newPlanner(seed uint64, hosts int, table []fault) *planner {
	return &planner{rand: rand.New(rand.NewPCG(seed, 0)), hosts: hosts, table: table}
}

const (
	mostFaults     = 3
	commandsARound = 8
	mostAfter      = 2 * time.Second // commands are under way, and those of one host go one by one
	mostContainers = 16
)

func (p *planner) next() round {
	r := round{hold: time.Duration(2+p.rand.IntN(5)) * time.Second}
	free := p.rand.Perm(p.hosts) // a host has one fault at a time
	for range 1 + p.rand.IntN(mostFaults) {
		f := p.table[p.rand.IntN(len(p.table))]
		if len(free) < f.hosts {
			continue
		}
		r.faults = append(r.faults, strike{f.name, free[:f.hosts], time.Duration(p.rand.Int64N(int64(mostAfter)))})
		free = free[f.hosts:]
	}
	for range commandsARound {
		r.commands = append(r.commands, p.command())
	}
	return r
}

// command: containers come on the networks that are always there, or with one of their own.
func (p *planner) command() command {
	if n := len(p.there); n > 0 && (n >= mostContainers || p.rand.IntN(2) == 0) {
		i := p.rand.IntN(n)
		c := p.there[i]
		p.there = slices.Delete(p.there, i, i+1)
		c.verb = map[string]string{"run": "rm", "network": "network-rm"}[c.verb]
		return c
	}
	p.made++
	c := command{verb: "run", host: p.rand.IntN(p.hosts), name: fmt.Sprint("guest", p.made), network: networks[p.rand.IntN(len(networks))]}
	if p.rand.IntN(4) == 0 {
		c.verb, c.network = "network", fmt.Sprint("net", p.made)
	}
	p.there = append(p.there, c)
	return c
}

// rest removes all that is there.
func (p *planner) rest() (list []command) {
	for _, c := range p.there {
		c.verb = map[string]string{"run": "rm", "network": "network-rm"}[c.verb]
		list = append(list, c)
	}
	p.there = nil
	return list
}
