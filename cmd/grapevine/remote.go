package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/config"
)

// newClient is for the agent of this host, or of the one that -H names.
func newClient(c *cobra.Command) (*api.Client, error) {
	if at := c.Flag("host").Value.String(); at != "" {
		r, err := parseRemote(at)
		if err != nil {
			return nil, err
		}
		if run := c.Flag("run"); run.Changed {
			r.run = run.Value.String()
		}
		return api.NewClientOver(r.host, r.dial), nil
	}
	cfg, err := config.Load(c.InheritedFlags(), os.Environ(), os.ReadFile) // a verb's own --port is no setting
	if err != nil {
		return nil, err
	}
	return api.NewClient(cfg.APISocket(), cfg.ReadSocket()), nil
}

// remote is a host whose agent is asked by ssh.
type remote struct{ user, host, port, run string }

func parseRemote(at string) (r remote, err error) {
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "ssh" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" {
		return r, fmt.Errorf("-H %s names no host: say ssh://HOST or ssh://USER@HOST:PORT", at)
	}
	return remote{user: u.User.Username(), host: u.Hostname(), port: u.Port()}, nil
}

// argv runs dial-stdio there. Where the plugin puts the program is in nobody's PATH.
func (r remote) argv() []string {
	argv := []string{"ssh", "-T", "-o", "ConnectTimeout=10"}
	if r.user != "" {
		argv = append(argv, "-l", r.user)
	}
	if r.port != "" {
		argv = append(argv, "-p", r.port)
	}
	there := "exec grapevine dial-stdio"
	if r.run != "" {
		there += " --run=" + quote(r.run)
	}
	return append(argv, "--", r.host, "sh -c "+quote("PATH=$PATH:/usr/local/bin:/var/lib/grapevine/bin; "+there))
}

// quote makes a word of text for a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// dial connects to the agent by an ssh whose standard input and output are the connection.
func (r remote) dial(context.Context) (net.Conn, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a pair of sockets for ssh: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "ssh"), os.NewFile(uintptr(ends[1]), "ssh")
	defer ours.Close()
	defer theirs.Close()
	argv := r.argv()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start ssh: %w", err)
	}
	go cmd.Wait() //nolint:errcheck // it ends with the connection, and says on standard error what is wrong
	return net.FileConn(ours)
}

// aboutThisHost are verbs that ask no agent, so that -H means nothing to them.
var aboutThisHost = map[string]bool{"agent": true, "cleanup": true, "restore": true, "completion": true, "version": true, "dial-stdio": true}

// refuseHost is for verbs that are about this host.
func refuseHost(c *cobra.Command, _ []string) error {
	if aboutThisHost[c.Name()] && c.Flag("host").Changed {
		return fmt.Errorf("`%s` is about this host, so -H means nothing to it: run it there, by ssh", c.CommandPath())
	}
	return nil
}

// newDialStdio is what -H runs on the other host.
func newDialStdio() *cobra.Command {
	return &cobra.Command{
		Use: "dial-stdio", Short: "Connect standard input and output to the agent's socket", Hidden: true, Args: noNames,
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := newClient(c)
			if err != nil {
				return err
			}
			conn, err := client.Dial(c.Context())
			if err != nil {
				return err
			}
			return pass(conn, os.Stdin, os.Stdout)
		},
	}
}

// pass copies both ways until both ends have ended.
func pass(conn net.Conn, in io.Reader, out io.Writer) error {
	defer conn.Close()
	var sending sync.WaitGroup
	sending.Go(func() {
		_, _ = io.Copy(conn, in)
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	})
	_, err := io.Copy(out, conn)
	return err // the input may stay open: nobody reads what it says
}
