// Package api is the agent's own interface, for the command line and for
// monitoring: HTTP and JSON over a unix socket that only root can open. The
// types here are the bodies; server and client share them, and the command's
// `-o json` prints them as they are. What is asked and answered, its route and the
// client's call are one file for each.
package api

// Done says in words what was done.
type Done struct {
	Text string `json:"text"`
}
