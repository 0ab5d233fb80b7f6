package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/observe/drops"
)

func newFlows() *cobra.Command {
	var all, drops bool
	var stage, of string
	live := false
	var names map[string]string // of endpoints; in JSON they have their IDs
	c := verb(&cobra.Command{
		Use:   "flows",
		Short: "List the flows of this host's switch that have counted packets",
		Long: `List the flows of this host's switch that have counted packets, stage by stage; docs/design/pipeline.md
explains the stages. On a terminal lines are cut to its width: a pipe (| less -S) gets them whole. These
are OpenFlow's flows, which are there for ranges of addresses, and not connections.`,
		Example: `  grapevine flows
  grapevine flows --drops              # which drop counts packets?
  grapevine flows --for db --all       # those of a container, network, host or address
  grapevine flows --stage forwarding
  grapevine flows -o json | jq '.[] | select(.packets > 0)'`,
	}, patience, func(ctx context.Context, c *api.Client, _ []string) ([]api.Flow, error) {
		if live {
			return nil, fmt.Errorf("flows are OpenFlow's, and have no --live: `grapevine flows --watch` shows their counters move")
		}
		flows, err := c.Flows(ctx)
		if err != nil {
			return nil, err
		}
		if stage != "" {
			if flows, err = flowsOfStage(flows, stage); err != nil {
				return nil, err
			}
		}
		if drops {
			flows = slices.DeleteFunc(flows, func(f api.Flow) bool { return !dropping(f) })
		}
		if of != "" {
			if flows, err = flowsOf(ctx, c, flows, of); err != nil {
				return nil, err
			}
		}
		names = endpointNames(ctx, c)
		return flows, nil
	}, func(w io.Writer, flows []api.Flow) error { return showFlows(w, flows, names, all) })
	c.Flags().BoolVar(&all, "all", false, "also those that have counted nothing")
	c.Flags().BoolVar(&drops, "drops", false, "only those that drop packets")
	c.Flags().StringVar(&stage, "stage", "", "only those of a stage, by its name or number")
	c.Flags().StringVar(&of, "for", "", "only those of a container, network, host or address")
	c.Flags().BoolVar(&live, "live", false, "")
	_ = c.Flags().MarkHidden("live")
	_ = c.RegisterFlagCompletionFunc("for", complete(knownNames))
	return watched(c)
}

func dropping(f api.Flow) bool {
	return strings.HasPrefix(f.Object, "drop: ") || drops.Is(f.Table, f.Actions)
}

func flowsOfStage(flows []api.Flow, stage string) ([]api.Flow, error) {
	is := func(f api.Flow) bool { return f.Stage == stage || strconv.Itoa(int(f.Table)) == stage }
	if !slices.ContainsFunc(flows, is) {
		var known []string
		for _, f := range flows {
			known = append(known, f.Stage)
		}
		slices.Sort(known)
		if known = slices.Compact(known); len(known) > 8 { // few enough to be said
			return nil, fmt.Errorf("there is no stage %s: there are %s", stage, strings.Join(known, ", "))
		}
		return nil, unknown("stage", stage, known)
	}
	return slices.DeleteFunc(flows, func(f api.Flow) bool { return !is(f) }), nil
}

// flowsOf picks those whose object or match has something of what a word means.
func flowsOf(ctx context.Context, c *api.Client, flows []api.Flow, word string) ([]api.Flow, error) {
	a, err := askAll(ctx, c)
	if err != nil {
		return nil, err
	}
	found := a.find(word)
	if found == nil {
		known, err := knownNames(ctx, c)
		if err != nil {
			return nil, err
		}
		return nil, unknownThing(word, known)
	}
	tokens := map[string]bool{}
	place := func(p container) {
		tokens[p.ID], tokens[p.MAC] = true, true
		for _, addr := range slices.Concat(p.Addrs, p.LinkLocal) {
			tokens[addr.String()] = true
		}
	}
	for _, t := range found {
		switch {
		case t.Container != nil:
			for _, p := range t.Container.Places {
				place(p)
			}
		case t.Network != nil:
			tokens[fmt.Sprintf("vnid %d", t.Network.VNID)] = true
			for _, s := range t.Network.Subnets {
				tokens[s.Prefix.String()] = true
			}
			for _, p := range t.Network.Containers {
				place(p)
			}
		case t.Host != nil:
			tokens[t.Host.VTEP.String()] = true
		case t.Address != nil:
			tokens[t.Address.Address.String()] = true
			if t.Address.Container != nil {
				place(*t.Address.Container)
			}
		}
	}
	delete(tokens, "")
	return slices.DeleteFunc(flows, func(f api.Flow) bool {
		_, object, _ := strings.Cut(f.Object, " ")
		if tokens[object] || tokens[f.Object] {
			return false
		}
		return !slices.ContainsFunc(strings.FieldsFunc(f.Match, func(r rune) bool { return r == ',' || r == '=' }), func(w string) bool { return tokens[w] })
	}), nil
}

// endpointNames are those of containers by their endpoints' IDs, as far as the agent knows them.
func endpointNames(ctx context.Context, c *api.Client) map[string]string {
	endpoints, _ := c.Endpoints(ctx) // without them the IDs stay
	names := map[string]string{}
	for _, e := range endpoints {
		names[e.ID] = e.Name
	}
	return names
}

// objectName is what a flow is for, with a container's name in place of its endpoint's ID.
func objectName(f api.Flow, names map[string]string) string {
	id, found := strings.CutPrefix(f.Object, "endpoint ")
	switch {
	case found && names[id] != "":
		return "endpoint " + names[id]
	case found && len(id) == 64:
		return "endpoint " + id[:12]
	}
	return dash(f.Object)
}

// showFlows leaves out what has counted nothing, but for all. On a terminal what a flow is for has a third
// of a line.
func showFlows(w io.Writer, flows []api.Flow, names map[string]string, all bool) error {
	return showFlowsOn(w, flows, names, all, screenOf(w))
}

func showFlowsOn(w io.Writer, flows []api.Flow, names map[string]string, all bool, on screen) error {
	widest := 0
	if on.columns > 0 {
		widest = max(on.columns/3, 24)
	}
	shown, idle := []api.Flow{}, 0
	for _, f := range flows {
		if f.Packets == 0 && !all {
			idle++
			continue
		}
		shown = append(shown, f)
	}
	var text strings.Builder
	err := table(&text, "STAGE\tPRIO\tPACKETS\tFOR\tMATCH\tACTIONS", func(row func(string, ...any)) {
		for _, f := range shown {
			stage := fmt.Sprintf("%d %s", f.Table, f.Stage)
			row("%s\t%d\t%d\t%s\t%s\t%s", stage, f.Priority, f.Packets, clip(objectName(f, names), widest), clip(dash(f.Match), widest), f.Actions)
		}
	})
	if idle > 0 {
		fmt.Fprintf(&text, "and %d that have counted nothing (--all)\n", idle)
	}
	if err == nil {
		_, err = io.WriteString(w, on.cut(text.String()))
	}
	return err
}

// clip cuts text to a width; 0: to none.
func clip(text string, width int) string {
	if r := []rune(text); width > 0 && len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return text
}
