package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/agent/idle"
	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/config"
)

// exitError is the exit status of a command that has said all there is to say.
type exitError int

func (c exitError) Error() string { return fmt.Sprintf("exit status %d", int(c)) }

// The doctor's exit statuses, for scripts.
const (
	errSomethingWrong exitError = 1
	errNotAsked       exitError = 2
)

// doctorPatience is for some dozens of hosts whose packets get lost.
const doctorPatience = 2 * time.Minute

func newDoctor() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with this host and its paths to the others",
		Long: `Look for what is wrong with this host and its paths to the others, and say what to do:
the kernel's module, Open vSwitch and its datapath; gossip, VXLAN and the largest packet
to and from each host, by real packets in both directions; clocks, the gossip key, the
firewall, addresses that two have, Docker, and names.

Where the agent does not run, it says so first, and checks what it can without one.

Exit status: 0 all is well; 1 something is wrong; 2 the agent, or something that it was
to look at, could not be asked, or who asks is not root.`,
		Example: `  grapevine doctor
  grapevine doctor -o json | jq -r '.checks[] | select(.verdict == "wrong") | .what, .do'
  grapevine doctor > /dev/null || echo "grapevine is not well on $(hostname)"`,
		Args: noNames,
		RunE: func(c *cobra.Command, _ []string) error {
			format, err := outputFormat(c)
			if err != nil {
				return err
			}
			d, ok := examine(c)
			if !ok && c.Flag("host").Changed {
				return errNotAsked
			}
			if !ok {
				fmt.Fprintln(c.ErrOrStderr(), "grapevine: the doctor was not asked: the agent's socket, and most of what the doctor looks at, are root's; say: sudo grapevine doctor")
				return errNotAsked
			}
			if format == "json" {
				err = printJSON(c.OutOrStdout(), d)
			} else {
				err = showDiagnosis(c.OutOrStdout(), d)
			}
			return errors.Join(err, verdict(d))
		},
	}
}

// examine asks the agent, or looks itself if that does not answer. Who is not root would see
// faults where there are none: then there is no answer.
func examine(c *cobra.Command) (d api.Diagnosis, ok bool) {
	ctx, cancel := context.WithTimeout(c.Context(), doctorPatience)
	defer cancel()
	if c.Flag("host").Changed {
		client, err := newClient(c)
		if err == nil {
			d, err = client.Doctor(ctx)
		}
		if err != nil {
			fmt.Fprintln(c.ErrOrStderr(), "grapevine:", err)
		}
		return d, err == nil
	}
	const start = "systemctl start grapevine, or docker plugin enable grapevine"
	cfg, err := config.Load(c.Flags(), os.Environ(), os.ReadFile)
	why, do := "", start
	if err != nil {
		cfg = config.Default()
		if run := c.Flag("run"); run.Changed {
			cfg.Run = run.Value.String()
		}
		why, do = "the settings are wrong: "+oneLine(err.Error()), "mend them, and start the agent again ("+start+")"
	}
	d, err = api.NewClient(cfg.APISocket(), cfg.ReadSocket()).Doctor(ctx)
	switch {
	case err == nil:
		return d, true
	case os.Geteuid() != 0:
		return d, false
	case why == "":
		why = oneLine(err.Error())
	}
	if cfg.Name == "" {
		cfg.Name, _ = os.Hostname() // for people only
	}
	return idle.Diagnose(ctx, cfg, programVersion(), why, do), true
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// verdict is the exit status; nil: all is well.
func verdict(d api.Diagnosis) error {
	if !d.Agent {
		return errNotAsked
	}
	worst := error(nil)
	for _, c := range d.Checks {
		switch c.Verdict {
		case api.Wrong:
			return errSomethingWrong
		case api.Unknown:
			worst = errNotAsked
		}
	}
	return worst
}

// doctorIndent is where the text of a check begins.
const doctorIndent = 20

// showDiagnosis prints the verdict first, then a line for each check, which a terminal has wrapped, and advice
// about what is well at the end.
func showDiagnosis(w io.Writer, d api.Diagnosis) error {
	count := map[api.Verdict]int{}
	for _, c := range d.Checks {
		count[c.Verdict]++
	}
	switch n := count[api.Wrong]; {
	case n > 0:
		fmt.Fprintln(w, colour(w, red, fmt.Sprintf("Not well: %d of %s.", n, words.Plural(len(d.Checks), "check"))))
	case count[api.Unknown] > 0:
		fmt.Fprintf(w, "Nothing wrong was found, but %d of %s could not be made.\n", count[api.Unknown], words.Plural(len(d.Checks), "check"))
	default:
		fmt.Fprintln(w, colour(w, green, fmt.Sprintf("All is well: %s.", words.Plural(len(d.Checks), "check"))))
	}
	on := screenOf(w)
	var better []string
	for _, c := range d.Checks {
		mark := map[api.Verdict]string{api.OK: "ok", api.Wrong: "WRONG", api.Unknown: "unknown"}[c.Verdict]
		line := fmt.Sprintf("%-7s  %-9s  %s", mark, c.Subject, oneLine(c.What))
		if c.Code != "" {
			line += fmt.Sprintf(" [%s]", c.Code)
		}
		switch {
		case c.Do != "" && c.Verdict == api.OK:
			better = append(better, c.Subject+": "+oneLine(c.Do))
		case c.Do != "":
			line += "; to do: " + oneLine(c.Do)
		}
		line = on.hang(line, doctorIndent)
		if c.Verdict == api.Wrong {
			line = colour(w, red, line)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	for i, line := range better {
		if i == 0 {
			fmt.Fprintln(w, "\nWell as it is, and could be better:")
		}
		if _, err := io.WriteString(w, on.wrap("  - ", line)); err != nil {
			return err
		}
	}
	return nil
}
