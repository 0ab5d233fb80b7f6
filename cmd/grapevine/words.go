package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/config"
)

// others are words that people bring from other programs, and what they are called here.
var others = map[string]string{
	"list": "ps", "ls": "ps", "info": "status", "health": "status", "check": "doctor", "diagnose": "doctor", "peers": "nodes", "members": "nodes",
	"ips": "ring", "ipam": "ring", "add": "join-command", "rm": "forget", "remove": "forget", "upgrade": "version", "uninstall": "cleanup",
}

// isVerb is for a word where a verb is to be: there is a verb of every word that is one.
func isVerb(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, v := range c.Commands() {
		if v.IsAvailableCommand() {
			known = append(append(known, v.Name()), v.Aliases...)
		}
	}
	word := args[0]
	meant := others[word]
	if !slices.Contains(known, meant) {
		meant = config.Nearest(word, known)
	}
	for _, k := range known {
		if meant == "" && len(word) > 2 && strings.HasPrefix(k, word) {
			meant = k
		}
	}
	if meant != "" {
		return fmt.Errorf("there is no command `%s %s`: did you mean `%s %s`?", c.CommandPath(), word, c.CommandPath(), meant)
	}
	if c.HasParent() { // few enough to say
		return fmt.Errorf("there is no command `%s %s`: there are %s", c.CommandPath(), word, words.Listed(known))
	}
	return fmt.Errorf("there is no command `%s %s`: `%s --help` lists them", c.CommandPath(), word, c.CommandPath())
}

// flagError says what a flag takes, where pflag tells what strconv thinks of it.
func flagError(c *cobra.Command, err error) error {
	if wrong, is := errors.AsType[*pflag.InvalidValueError](err); is {
		takes := map[string]string{
			"uint16": "a number from 0 to 65535", "uint64": "a number", "int": "a number", "duration": "a time, such as 30s or 5m", "bool": "true or false",
		}[wrong.GetFlag().Value.Type()]
		if takes != "" {
			return fmt.Errorf("--%s takes %s, and not %s", wrong.GetFlag().Name, takes, wrong.GetValue())
		}
	}
	return fmt.Errorf("%w: `%s --help` lists the flags", err, c.CommandPath())
}

// noNames is for verbs that are not about something by name.
func noNames(c *cobra.Command, args []string) error {
	if c.HasAvailableSubCommands() {
		return isVerb(c, args)
	}
	if len(args) > 0 {
		return fmt.Errorf("`%s` is about the whole and takes no name, %s: `grapevine show %s` is about one thing", c.CommandPath(), args[0], args[0])
	}
	return nil
}

// oneOf is for verbs with a word of a few, or none if it may be left out.
func oneOf(optional bool, words ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		all := strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
		switch {
		case len(args) == 0 && optional, len(args) == 1 && slices.Contains(words, args[0]):
			return nil
		case len(args) == 0:
			return fmt.Errorf("`%s` wants a word more: %s", c.CommandPath(), all)
		case len(args) > 1:
			return fmt.Errorf("`%s` takes one word: %s", c.CommandPath(), all)
		}
		return fmt.Errorf("`%s` knows no %s: say %s", c.CommandPath(), args[0], all)
	}
}

// named is for verbs with at least some and at most so many names of a thing; 0: any number.
func named(what string, least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("`%s` wants the name of %s: `%s %s`", c.CommandPath(), what, c.Parent().CommandPath(), c.Use)
		case most > 0 && len(args) > most:
			return fmt.Errorf("`%s` takes one name, not %d: `%s %s`", c.CommandPath(), len(args), c.Parent().CommandPath(), c.Use)
		}
		return nil
	}
}

// unknown says that nothing has a name, and which names there are.
func unknown(what, name string, known []string) error {
	slices.Sort(known)
	known = slices.Compact(known)
	const few = 8
	switch meant := config.Nearest(name, known); {
	case meant != "":
		return fmt.Errorf("there is no %s %s: did you mean %s?", what, name, meant)
	case len(known) == 0:
		return fmt.Errorf("there is no %s %s: there is none yet", what, name)
	case len(known) == 1:
		return fmt.Errorf("there is no %s %s: there is %s alone", what, name, known[0])
	case len(known) <= few:
		return fmt.Errorf("there is no %s %s: there are %s and %s", what, name, strings.Join(known[:len(known)-1], ", "), known[len(known)-1])
	}
	return fmt.Errorf("there is no %s %s: `grapevine show` and `grapevine ps` know %d others", what, name, len(known))
}

// pick returns of a list what the names are of (no names: all). One that nothing is of is an error.
func pick[T any](what string, list []T, args []string, is func(T, string) bool, called func(T) string) ([]T, error) {
	if len(args) == 0 {
		return list, nil
	}
	picked := []T{}
	for _, name := range args {
		if !slices.ContainsFunc(list, func(x T) bool { return is(x, name) }) {
			var known []string
			for _, x := range list {
				known = append(known, called(x))
			}
			return nil, unknown(what, name, known)
		}
	}
	for _, x := range list {
		if slices.ContainsFunc(args, func(name string) bool { return is(x, name) }) {
			picked = append(picked, x)
		}
	}
	return picked, nil
}

// shortest is the fewest digits of an ID that stand for it.
const shortest = 4

// begins reports whether a word is an ID or its beginning.
func begins(id, word string) bool { return len(word) >= shortest && strings.HasPrefix(id, word) }

func isHost(n api.Node, word string) bool {
	return n.Name == word || begins(n.ID, word) || n.VTEP.String() == word || n.Underlay().String() == word
}

// ofEndpoint reports whether a word means an endpoint: its container, its network, an address or its host.
func ofEndpoint(e api.Endpoint, word string) bool {
	return e.Name == word || slices.Contains(e.Aliases, word) || e.Network == word || e.Host == word || begins(e.Container, word) || begins(e.ID, word) || hasAddress(e, word)
}

// knownNames are all that a word may be of.
func knownNames(ctx context.Context, c *api.Client) (map[string]string, error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	networks, err := c.Networks(ctx)
	if err != nil {
		return nil, err
	}
	endpoints, err := c.Endpoints(ctx)
	known := map[string]string{}
	for _, e := range endpoints {
		if e.Name != "" {
			known[e.Name] = "container on " + e.Host
		}
	}
	for _, n := range networks {
		known[n.Name] = "network"
	}
	for _, n := range nodes {
		known[n.Name] = "host"
	}
	return known, err
}
