package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/host/door"
	"github.com/grapevine-net/grapevine/ui"
	"github.com/grapevine-net/grapevine/ui/needs"
)

func newUI() *cobra.Command {
	port := uint16(0)
	c := &cobra.Command{
		Use:   "ui",
		Short: "Show hosts, networks and containers as a page in the browser",
		Long: `Show a page in the browser: whether all is well and what to do, which container is on which network
and host, and what is in the way between two of them. The page only looks, and changes nothing.

The command serves the page as long as it runs, on 127.0.0.1 alone. It prints an address that works
once, within ten minutes; Enter prints another, for another browser, Ctrl-C ends it. From another machine:

  ssh -t -L 7954:127.0.0.1:7954 nuc1 sudo grapevine ui     # then open what it prints
  grapevine -H ssh://root@nuc1 ui                          # nothing listens on nuc1`,
		Example: `  grapevine ui
  grapevine ui --page-port=7955`,
		Args: noNames,
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := newClient(c)
			if err != nil {
				return err
			}
			listener, err := new(net.ListenConfig).Listen(c.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
			if errors.Is(err, syscall.EADDRINUSE) {
				return fmt.Errorf("serve the page at port %d: another program has it, or another `grapevine ui`: say --page-port=N, or --page-port=0 for any", port)
			}
			if err != nil {
				return fmt.Errorf("serve the page: %w", err)
			}
			return serveUI(c.Context(), listener, ui.New(questions(client)), c.InOrStdin(), c.OutOrStdout())
		},
	}
	c.Flags().Uint16Var(&port, "page-port", 7954, "the port of 127.0.0.1; 0: any that is free")
	return c
}

// uiConnections is more than a few browsers open. Every user of the host can open more.
const uiConnections = 64

// serveUI serves until ctx ends, and prints an address at first and for each line of in.
func serveUI(ctx context.Context, listener net.Listener, s *ui.Server, in io.Reader, out io.Writer) error {
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10, ConnContext: door.Context}
	served := make(chan error, 1)
	go func() { served <- server.Serve(door.New(listener, uiConnections)) }()
	enter, gone := make(chan struct{}), make(chan struct{})
	go func() { // it ends with the program: nothing wakes who reads a terminal
		for lines := bufio.NewScanner(in); lines.Scan(); {
			select {
			case enter <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
		if somebodys(in) {
			close(gone)
		}
	}()
	for {
		if _, err := fmt.Fprintf(out, "Open http://%s/#%s\n      works once, within 10 minutes; Enter: another one; Ctrl-C ends the page\n", listener.Addr(), s.Token()); err != nil {
			server.Close()
			return errors.Join(err, notClosed(<-served))
		}
		select {
		case <-enter:
		case <-ctx.Done():
			server.Close()
			return notClosed(<-served)
		case <-gone:
			server.Close()
			return notClosed(<-served)
		case err := <-served:
			return fmt.Errorf("serve the page: %w", err)
		}
	}
}

// somebodys says whether who presses keys is there as long as in is: a terminal, or the other end of a pipe. /dev/null is nobody's.
func somebodys(in io.Reader) bool {
	f, isFile := in.(*os.File)
	if !isFile {
		return true
	}
	is, err := f.Stat()
	null, nullErr := os.Stat(os.DevNull)
	return err != nil || !is.Mode().IsRegular() && (nullErr != nil || !os.SameFile(is, null)) // a terminal that was hung up may have no state
}

func notClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// questions are what the page may ask: each is answered by what a verb that only looks prints with -o json.
func questions(c *api.Client) map[string]ui.Ask {
	asks := map[string]ui.Ask{
		"status": func(ctx context.Context, _ url.Values) (any, error) {
			s, err := c.Status(ctx)
			if err != nil {
				s = silentAgent(err)
			}
			s.Process = api.Process{} // it differs each time, and nobody asks the page for it
			return s, nil
		},
		"ring":     asked(c.Ring),
		"policies": asked(c.Policies().List),
		"services": asked(c.Services().List),
		"clients":  asked(c.NetworkClients().List),
		"egresses": asked(c.Egresses().List),
		"doctor":   asked(c.Doctor),
		"kinds":    asked(func(context.Context) ([]api.Kind, error) { return api.Kinds, nil }),
		"drops": func(ctx context.Context, _ url.Values) (any, error) {
			flows, err := c.Flows(ctx)
			if err != nil {
				return nil, err
			}
			endpoints, err := c.Endpoints(ctx)
			return droppedEnds(flows, endpoints), err
		},
		"traffic": func(ctx context.Context, q url.Values) (any, error) {
			t, err := c.Traffic(ctx, api.TrafficOf{All: q.Get("all") == "true"})
			return needs.TrafficOf(t, q.Get("only") == "unanswered"), err
		},
		"trace": func(ctx context.Context, q url.Values) (any, error) {
			return traceOf(ctx, c, q.Get("from"), q.Get("to"), true)
		},
	}
	maps.Copy(asks, needs.Lists{Nodes: c.Nodes, Networks: c.Networks, Endpoints: c.Endpoints}.Asks())
	for name, ask := range asks {
		if name != "doctor" && name != "trace" { // which send packets, and wait for them
			asks[name] = soon(ask)
		}
	}
	return asks
}

// soon waits for an answer no longer than other verbs do.
func soon(ask ui.Ask) ui.Ask {
	return func(ctx context.Context, q url.Values) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return ask(ctx, q)
	}
}

// droppedEnd is what was dropped, with the names of its ends where they are addresses of containers.
type droppedEnd struct {
	dropped
	WhoIs     string `json:"whoIs,omitempty"`
	WhereToIs string `json:"whereToIs,omitempty"`
}

func droppedEnds(flows []api.Flow, endpoints []api.Endpoint) []droppedEnd {
	names, at := map[string]string{}, map[string]string{}
	for _, e := range endpoints {
		names[e.ID] = e.Name
		for _, a := range e.Addrs {
			at[a.String()] = e.Name
		}
	}
	list := []droppedEnd{}
	for _, d := range droppedBy(flows, names, false) {
		one := droppedEnd{d, at[d.Who], at[d.WhereTo]}
		if names[d.Endpoint] != "" {
			one.WhoIs = d.Who
		}
		list = append(list, one)
	}
	return list
}

// asked is a method of the client that takes no arguments.
func asked[T any](method func(context.Context) (T, error)) ui.Ask {
	return func(ctx context.Context, _ url.Values) (any, error) { return method(ctx) }
}
