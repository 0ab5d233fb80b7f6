package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/encap"
)

func newStatus() *cobra.Command {
	check, asked, wrong := false, false, false
	c := verb(&cobra.Command{
		Use:   "status",
		Short: "Say whether all is well, and if not, what to do",
		Long: `Say whether all is well, and if not, what to do. Each problem has a code, [host-silent], which
docs/operate/troubleshooting.md, metrics and alerts know it by. Scripts take --check, whose exit
status is: 0 all is well; 1 something is wrong; 2 the agent could not be asked. With -o json that is
a problem as well, of the code agent-silent.`,
		Example: `  grapevine status
  grapevine status --check > /dev/null || echo "grapevine is not well on $(hostname)"
  grapevine status -o json | jq -r '.problems[] | "\(.severity) \(.code): \(.what)"'`,
	}, patience, func(ctx context.Context, c *api.Client, _ []string) (api.Status, error) {
		s, err := c.Status(ctx)
		asked, wrong = err == nil, len(s.Problems) > 0
		return s, err
	}, showStatus)
	watched(c)
	c.Flags().BoolVar(&check, "check", false, "exit with 1 if something is wrong, with 2 if the agent could not be asked")
	c.MarkFlagsMutuallyExclusive("check", "watch")
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		err := run(c, args)
		if err != nil && !asked && c.Flag("output").Value.String() == "json" {
			err = errors.Join(err, printJSON(c.OutOrStdout(), silentAgent(err)))
		}
		switch {
		case check && err != nil && !asked:
			fmt.Fprintln(c.ErrOrStderr(), "grapevine:", err)
			return errNotAsked
		case check && err == nil && wrong:
			return errSomethingWrong
		}
		return err
	}
	return c
}

// silentAgent is the status of a host whose agent could not be asked.
func silentAgent(why error) api.Status {
	return api.Status{Version: programVersion(), Problems: []api.Problem{{
		Code: api.AgentSilent, Severity: api.AgentSilent.Severity(), What: why.Error(), Do: "grapevine doctor",
	}}}
}

// showStatus prints the verdict first, then what matters most; on a terminal no more
// than fits its screen.
func showStatus(w io.Writer, s api.Status) error {
	return showStatusOn(w, s, screenOf(w))
}

func showStatusOn(w io.Writer, s api.Status, on screen) error {
	var facts strings.Builder
	if s.Node != "" || len(s.Problems) == 0 { // else no agent runs, only what explains why
		facts.WriteString("\n")
		if err := showFacts(&facts, s); err != nil {
			return err
		}
	}
	below := on.cut(facts.String())
	if len(s.Problems) == 0 {
		fmt.Fprintln(w, colour(w, green, "All is well."))
	} else {
		fmt.Fprintln(w, colour(w, red, fmt.Sprintf("Not well: %s.", words.Plural(len(s.Problems), "problem"))))
		showProblems(w, s.Problems, on, strings.Count(below, "\n"))
	}
	for _, n := range s.Notes[:min(len(s.Notes), maxNotes)] {
		fmt.Fprint(w, on.wrap("  - ", n))
	}
	if more := len(s.Notes) - maxNotes; more > 0 {
		fmt.Fprintf(w, "  - and %d more (-o json)\n", more)
	}
	_, err := io.WriteString(w, below)
	return err
}

// maxNotes is how many notes are shown.
const maxNotes = 3

// showProblems leaves room for the lines above and below, and for the prompt.
func showProblems(w io.Writer, problems []api.Problem, on screen, below int) {
	room := on.rows - 1 - below - 1
	for i, p := range problems {
		what := p.What
		if p.Code != "" {
			what += fmt.Sprintf(" [%s]", p.Code)
		}
		text := on.wrap("  - ", what) + on.wrap("    ", p.Do)
		lines := strings.Count(text, "\n")
		last := i == len(problems)-1
		if on.rows > 0 && (lines > room || lines == room && !last) {
			fmt.Fprintf(w, "  and %d more: grapevine doctor, or grapevine status | less\n", len(problems)-i)
			return
		}
		room -= lines
		fmt.Fprint(w, text)
	}
}

// tried says of how many other hosts it is known that packets pass, both ways.
func tried(c api.Count) string {
	if c.All == 0 {
		return ""
	}
	return fmt.Sprintf(", packets to and from %d of %d just tried", c.Part, c.All)
}

func showFacts(w io.Writer, s api.Status) error {
	return table(w, "host\t"+s.Name+" ("+s.Node+")", func(row func(string, ...any)) {
		row("cluster\t%s", dash(s.Cluster))
		row("hosts\t%d of %d alive%s", s.Hosts.Part, s.Hosts.All, tried(s.Tried))
		row("networks\t%d", s.Networks)
		row("endpoints\t%d here, %d in the cluster", s.Endpoints.Part, s.Endpoints.All)
		if s.Driver != "" {
			row("driver\t%s: docker network create -d %s --ipam-driver %s NAME", s.Driver, s.Driver, s.Driver)
		}
		if s.Edge != nil {
			row("reaches\t%s (no Docker here: GRAPEVINE_NETWORKS)", dash(strings.Join(s.Edge.Networks, ", ")))
			row("resolver\t%s", edgeResolver(*s.Edge))
		}
		row("underlay\t%s, MTU %d, %s", s.VTEP, s.MTU, wrappedAt(s.Encap, s.VXLANPort, "%s port %d"))
		if s.Encryption != "" {
			row("encryption\t%s", s.Encryption)
		}
		row("switch\t%s Open vSwitch, %s datapath", dash(s.OVS), dash(s.Datapath))
		if k := s.Kernel; k != nil {
			row("datapath\t%s, %s; %d packets found one, %d did not, %d of these were lost", words.Plural(int(k.Flows), "flow"), words.Plural(int(k.Masks), "mask"), k.Hit, k.Missed, k.Lost)
		}
		row("fast path\t%s", dash(s.FastPath))
		row("names\t%s", names(s.Names))
		row("agent\t%s, up %s", s.Version, time.Since(s.Since).Round(time.Second))
		if s.Foreign > 0 {
			row("dropped\t%s that no host of the cluster sent", words.Plural(int(s.Foreign), wrapping(s.Encap)+" packet"))
		}
		for _, n := range s.Shared[:min(len(s.Shared), 3)] {
			row("shared\t%s on %s: %s answer (if one of them is to: stop the other, and say `up -d --no-deps`)", n.Name, n.Network, several(n.Hosts))
		}
		if n := len(s.Shared) - 3; n > 0 {
			row("shared\tand %d more (-o json)", n)
		}
		if len(s.Aside) > 0 {
			row("set aside\t%s: of before this host was forgotten; remove what is not needed", strings.Join(s.Aside, ", "))
		}
		for _, reason := range slices.Sorted(maps.Keys(s.Refused)) {
			row("refused\t%s: %s", words.Plural(int(s.Refused[reason]), "gossip message"), refusal(reason))
		}
	})
}

// refusal is a reason of gossip's, in the words that problems have for it.
func refusal(reason string) string {
	if reason == "bad-key" {
		return "another gossip key"
	}
	return reason
}

// edgeResolver says how programs of a host without Docker know containers' names.
func edgeResolver(e api.Edge) string {
	if e.Split {
		return "systemd-resolved asks the agent about names of these networks (resolvectl status gv0)"
	}
	if e.First != e.Server.String() {
		return fmt.Sprintf("nameserver %s has containers' names, and the first in /etc/resolv.conf is %s: programs do not find containers by name", e.Server, cmp.Or(e.First, "none"))
	}
	return fmt.Sprintf("nameserver %s, first in /etc/resolv.conf, has containers' names; it asks the others there about all else", e.Server)
}

func names(r api.Resolver) string {
	text := fmt.Sprintf("%s, %d answered here, inside %s", words.Plural(int(r.Queries), "question"), r.Answered, words.Plural(r.Inside, "container"))
	if r.Outside > 0 {
		text += fmt.Sprintf(", not inside %d", r.Outside)
	}
	if r.Failed > 0 {
		text += fmt.Sprintf("; %d that no server answered", r.Failed)
	}
	return text
}

const red, green = "\x1b[31m", "\x1b[32m"

// colour colours text for a terminal only.
func colour(w io.Writer, code, text string) string {
	if !colours(w) {
		return text
	}
	return code + text + "\x1b[0m"
}

// wrappedAt is an encapsulation with its port, if it has one.
func wrappedAt(name string, port uint16, format string) string {
	if k, _ := encap.Of(name); !k.Ports() {
		return k.Title
	}
	return fmt.Sprintf(format, wrapping(name), port)
}

// passing is what firewalls are to let pass of an encapsulation.
func passing(name string) string {
	if k, known := encap.Of(name); known && !k.Ports() {
		return k.By(0)
	}
	return "UDP to the port of " + wrapping(name)
}

// wrapping is an encapsulation as people call it, by its name in the API.
func wrapping(name string) string {
	k, known := encap.Of(name)
	if !known {
		return name
	}
	return k.Title
}
