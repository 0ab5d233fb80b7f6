package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
)

// patience bounds a question to the agent; leave and forget may take longer.
const patience = 15 * time.Second

// verb makes c a command that asks the agent and prints its answer, by show or,
// with -o json, as the agent gave it.
func verb[T any](c *cobra.Command, limit time.Duration, ask func(context.Context, *api.Client, []string) (T, error), show func(io.Writer, T) error) *cobra.Command {
	if c.Args == nil {
		c.Args = noNames
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		format, client, err := asking(c)
		if err != nil {
			return err
		}
		print := func(ctx context.Context, w io.Writer) error {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			value, err := ask(ctx, client, args)
			if err != nil {
				return err
			}
			if format == "json" {
				return printJSON(w, value)
			}
			return show(w, value)
		}
		if isWatched(c) {
			return watch(c.Context(), c.OutOrStdout(), strings.Join(append([]string{c.CommandPath()}, args...), " "), print)
		}
		return print(c.Context(), c.OutOrStdout())
	}
	return c
}

// asking is what a verb needs to ask: how it prints the answer, and whom it asks.
func asking(c *cobra.Command) (format string, client *api.Client, err error) {
	if format, err = outputFormat(c); err != nil {
		return "", nil, err
	}
	client, err = newClient(c)
	return format, client, err
}

// outputFormat is table or json.
func outputFormat(c *cobra.Command) (string, error) {
	format := c.Flag("output").Value.String()
	if format != "table" && format != "json" {
		return "", fmt.Errorf("-o %s is unknown: use table or json", format)
	}
	return format, nil
}

func printJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// list adapts a method of the client that takes no arguments.
func list[T any](method func(*api.Client, context.Context) (T, error)) func(context.Context, *api.Client, []string) (T, error) {
	return func(ctx context.Context, c *api.Client, _ []string) (T, error) { return method(c, ctx) }
}

// of is a method of one room of the client's, for list.
func of[R, T any](room func(*api.Client) R, method func(R, context.Context) (T, error)) func(*api.Client, context.Context) (T, error) {
	return func(c *api.Client, ctx context.Context) (T, error) { return method(room(c), ctx) }
}

// table aligns rows under a header; cells are separated by tabs.
func table(w io.Writer, header string, rows func(row func(format string, cells ...any))) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, header)
	rows(func(format string, cells ...any) { fmt.Fprintf(t, format+"\n", cells...) })
	return t.Flush()
}

// dash stands for an empty cell.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func showDone(w io.Writer, d api.Done) error {
	_, err := fmt.Fprintln(w, d.Text)
	return err
}

func several(all []string) string {
	const most = 5
	if more := len(all) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), more)
	}
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:len(all)-1], ", ") + " and " + all[len(all)-1]
}
