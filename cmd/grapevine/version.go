package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  grapevine version -o json",
		Args:    noNames,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flag("output").Value.String() == "json" {
				return printJSON(c.OutOrStdout(), map[string]string{"version": programVersion()})
			}
			return printVersion(c)
		},
	}
}

func printVersion(c *cobra.Command) error {
	_, err := fmt.Fprintln(c.OutOrStdout(), "grapevine", programVersion())
	return err
}
