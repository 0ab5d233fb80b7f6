package ovs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// The kernel's datapath outlives ovs-vswitchd, with its flows, which name ports by number. When a
// container's interface goes meanwhile, the kernel gives its number to the next port that is
// added, and the flows of the one that has gone carry packets to another network's container, and
// take its packets for theirs. Nobody but ovs-vswitchd adds ports. So from its end until these
// flows have gone no port of an endpoint is added: not by the database as it finds it
// (forgetAbsent), nor by who asks for one (Settled). What its former life forwarded goes on being
// forwarded until then.

// Settled reports whether ports may be added: no flows are left of a former life of ovs-vswitchd.
func (e *Embedded) Settled() bool {
	return e.Datapath != Kernel || e.settled.Load() == e.life.Load()+1
}

// unsettle notes that ovs-vswitchd has ended, or is about to begin.
func (e *Embedded) unsettle() { e.life.Add(1) }

// FlowsInPlace tells ovs-vswitchd that the flows are in place, after each start. Until
// then the kernel's datapath forwards what it did before, and nothing new. Then what it did
// before is forgotten: whatever comes is looked at anew.
func (e *Embedded) FlowsInPlace(ctx context.Context) error {
	life := e.life.Load()
	if e.Datapath != Kernel || e.settled.Load() == life+1 {
		return nil
	}
	if err := e.Instance().restored(ctx); err != nil {
		return fmt.Errorf("tell ovs-vswitchd that its flows are in place: %w", err)
	}
	e.settled.Store(life + 1) // of no use if there is another life by now
	return nil
}

// restored ends the wait that prepareSwitch began, if it lasts, and then deletes the datapath's flows.
func (i *Instance) restored(ctx context.Context) error {
	c, err := i.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	found, err := c.selects(ctx, query{openVSwitch, []string{"other_config"}})
	if err != nil {
		return err
	}
	var config map[string]string
	if len(found[0]) == 1 {
		config = found[0][0].dict("other_config")
	}
	set := func(key string) operation {
		return mutate(openVSwitch, all, put("other_config", map[string]string{key: "false"})...)
	}
	if config[restoreWait] != "false" {
		if err := c.configure(ctx, set(restoreWait)); err != nil {
			return err
		}
	}
	if config[staleFlows] != "true" {
		return nil // another agent's work: this one has found ovs-vswitchd running
	}
	// Now that it listens, whatever comes is asked for: nothing is lost.
	if _, err := i.command(ctx, nil, "ovs-dpctl", "del-flows", kernelDatapath); err != nil {
		return err
	}
	// What ovs-vswitchd has put in since then went with them, and it would not put it in again for
	// seconds, in which each packet goes through it, and none at all if it ended.
	if _, err := i.Appctl(ctx, "revalidator/purge"); err != nil {
		return err
	}
	_, err = c.transact(ctx, set(staleFlows))
	return err
}

// staleFlows notes in the database that there are flows of a former life: an agent may be killed
// before they have gone.
const staleFlows = "grapevine-stale-flows"

// kernelDatapath is the one that ovs-vswitchd has in the kernel.
const kernelDatapath = "system@ovs-system"

// forgetAbsent takes from the database the endpoints' ports that the kernel's datapath does not have:
// ovs-vswitchd would add them as it starts. Whoever wants them adds them again, when Settled.
func (e *Embedded) forgetAbsent(ctx context.Context) error {
	if _, err := KernelCounters(); errors.Is(err, os.ErrNotExist) {
		return nil // no datapath: no flows are left, either
	}
	i := e.Instance()
	out, err := i.command(ctx, nil, "ovs-dpctl", "show", kernelDatapath)
	if err != nil {
		return err
	}
	there := portsIn(string(out))
	c, err := i.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	found, err := c.selects(ctx, query{"Interface", []string{"name", "external_ids"}}, query{"Port", []string{"_uuid", "name"}})
	if err != nil {
		return err
	}
	absent := map[string]bool{}
	for _, r := range found[0] {
		if r.dict("external_ids")[idEndpoint] != "" && !there[r.text("name")] {
			absent[r.text("name")] = true
		}
	}
	var ops []operation
	for _, r := range found[1] {
		if absent[r.text("name")] {
			ops = append(ops, mutate("Bridge", []any{}, []any{"ports", "delete", []any{"uuid", first(r.uuids("_uuid"))}}))
		}
	}
	if len(ops) == 0 {
		return nil
	}
	if _, err := c.transact(ctx, ops...); err != nil {
		return fmt.Errorf("forget ports that have gone: %w", err)
	}
	return nil
}

// portsIn reads the names of ports in what `ovs-dpctl show` prints: "  port 4: gv3f1c (internal)".
func portsIn(text string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(text) {
		number, rest, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if name, _, _ := strings.Cut(rest, " "); ok && strings.HasPrefix(number, "port ") {
			names[name] = true
		}
	}
	return names
}
