package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manPages makes the manual pages (man(7)) of the program and of each command, by file
// name, from what --help says.
func manPages() map[string]string {
	root := newRoot()
	pages := map[string]string{"grapevine.1": manPage(root)}
	for _, c := range root.Commands() {
		if c.Hidden {
			continue
		}
		pages["grapevine-"+c.Name()+".1"] = manPage(c)
	}
	return pages
}

func manPage(c *cobra.Command) string {
	var b strings.Builder
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	fmt.Fprintf(&b, ".\\\" Made from the commands by `make docs`.\n.TH %s 1 \"\" grapevine \"User Commands\"\n", strings.ToUpper(name))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(c.Short))
	if c.HasParent() {
		use := strings.TrimPrefix(c.UseLine(), c.CommandPath())
		fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n%s\n", roff(c.CommandPath()), roff(strings.TrimSpace(use)))
	} else {
		b.WriteString(".SH SYNOPSIS\n.B grapevine\n\\fICOMMAND\\fR [\\fIFLAGS\\fR]\n")
	}
	b.WriteString(".SH DESCRIPTION\n")
	for i, paragraph := range strings.Split(describe(c), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		b.WriteString(roff(paragraph) + "\n")
	}
	if c.HasAvailableSubCommands() {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range c.Commands() {
			if sub.Hidden {
				continue
			}
			fmt.Fprintf(&b, ".TP\n.BR grapevine\\-%s (1)\n%s\n", roff(sub.Name()), roff(sub.Short))
		}
	}
	b.WriteString(".SH OPTIONS\n")
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.AddFlagSet(c.NonInheritedFlags())
	flags.AddFlagSet(c.InheritedFlags())
	flags.VisitAll(func(f *pflag.Flag) { manFlag(&b, f) })
	if c.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(c.Example))
	}
	b.WriteString(".SH SEE ALSO\n")
	if c.HasParent() {
		b.WriteString(".BR grapevine (1)\n")
	} else {
		b.WriteString("docs/ of the project\n")
	}
	return b.String()
}

func describe(c *cobra.Command) string {
	if c.Long != "" {
		return c.Long
	}
	return c.Short + "."
}

func manFlag(b *strings.Builder, f *pflag.Flag) {
	name := "\\fB" + roff("--"+f.Name) + "\\fR"
	if f.Shorthand != "" {
		name = "\\fB" + roff("-"+f.Shorthand) + "\\fR, " + name
	}
	if f.Value.Type() != "bool" {
		name += " \\fI" + f.Value.Type() + "\\fR"
	}
	usage := f.Usage
	if f.DefValue != "" && f.DefValue != "false" {
		usage += " (default " + f.DefValue + ")"
	}
	fmt.Fprintf(b, ".TP\n%s\n%s\n", name, roff(usage))
}

// roff escapes what troff would take for its own.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`).Replace(text)
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, ".") {
			b.WriteString(`\&`)
		}
		b.WriteString(line)
	}
	return b.String()
}
