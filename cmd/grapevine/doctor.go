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

const (
	// doctorPatience is for some dozens of hosts whose packets get lost.
	doctorPatience = 2 * time.Minute
	// alonePatience is for what is looked at without the agent: time of its own, whatever the agent took.
	alonePatience = time.Minute
	// doctorSilence is how long the doctor works without a word.
	doctorSilence = 3 * time.Second
)

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
	if c.Flag("host").Changed {
		client, err := newClient(c)
		if err == nil {
			d, err = askDoctor(c, client)
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
	d, err = askDoctor(c, api.NewClient(cfg.APISocket(), cfg.ReadSocket()))
	switch {
	case err == nil:
		return d, true
	case os.Geteuid() != 0:
		return d, false
	case why == "":
		why = oneLine(err.Error())
	}
	if errors.Is(err, errHangs) {
		do = "if it stays so: systemctl restart grapevine, or docker plugin disable -f grapevine and enable it"
	}
	if cfg.Name == "" {
		cfg.Name, _ = os.Hostname() // for people only
	}
	ctx, cancel := context.WithTimeout(c.Context(), alonePatience)
	defer cancel()
	defer meanwhile(c.ErrOrStderr(), "looking at this host without its agent")()
	return idle.Diagnose(ctx, cfg, programVersion(), why, do), true
}

// errHangs says that an agent is there and answers nothing.
var errHangs = errors.New("the agent hangs")

// askDoctor asks the agent. One that answers not even what it knows already is not waited for as long as one that
// sends packets.
func askDoctor(c *cobra.Command, client *api.Client) (d api.Diagnosis, err error) {
	ask := func(within time.Duration, text string, question func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(c.Context(), within)
		defer cancel()
		defer meanwhile(c.ErrOrStderr(), text)()
		err := question(ctx)
		if err != nil && ctx.Err() != nil && c.Context().Err() == nil {
			return hanging{err}
		}
		return err
	}
	err = ask(patience, fmt.Sprintf("waiting for the agent, for up to %v", patience), func(ctx context.Context) error {
		_, err := client.Status(ctx)
		return err
	})
	if errors.Is(err, errHangs) {
		return d, err
	}
	err = ask(doctorPatience, fmt.Sprintf("the agent tries the paths to the other hosts; where packets are lost, that takes up to %v", doctorPatience), func(ctx context.Context) (err error) {
		d, err = client.Doctor(ctx)
		return err
	})
	return d, err
}

// hanging is an error of an agent that hangs, in the same words.
type hanging struct{ error }

func (hanging) Is(target error) bool { return target == errHangs }

// meanwhile says what is waited for, if that takes a while, until the function that it returns is called.
func meanwhile(w io.Writer, text string) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ended:
		case <-time.After(doctorSilence):
			fmt.Fprintf(w, "grapevine: %s ...\n", text)
		}
	}()
	return func() {
		close(ended)
		<-done
	}
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
