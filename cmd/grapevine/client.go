package main

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/api"
)

func newClientVerb() *cobra.Command {
	c := verb(&cobra.Command{
		Use:   "client",
		Short: "Let a laptop or a phone into a network, by WireGuard",
		Long: `A client is a device that comes into one network by any WireGuard app. It has an address of the network, and
reaches what a container on it reaches within the cluster: the other containers by their names, and what policies let
it. Without a verb the clients are listed.`,
		Example: `  grapevine client add laptop --network blue --endpoint vpn.example.com:7949
  grapevine client
  grapevine client remove laptop`,
		Args: noNames,
	}, patience, list(of((*api.Client).NetworkClients, api.NetworkClientCalls.List)), showClients)
	c.AddCommand(newClientAdd(), newClientList(), newClientRemove())
	return c
}

// clientShow is how a client's file is to be shown.
type clientShow struct {
	file string
	qr   bool
}

func newClientAdd() *cobra.Command {
	var r api.AddClientRequest
	var show clientShow
	var private string
	c := verb(&cobra.Command{
		Use:   "add NAME --network NETWORK [--endpoint HOST:PORT]",
		Short: "Add a client",
		Long: `Add a client to a network, at this host: it comes in here, by UDP port 7949 (GRAPEVINE_CLIENT_PORT), which must be
open to it. What is printed is the file for its WireGuard app, and, on a terminal, the same as a QR code to scan. The
file has the client's private key, which is made here, printed this once, and kept nowhere. With --public-key no private
key leaves the client: the client makes its own, and puts it into the file.`,
		Example: `  grapevine client add laptop --network blue --endpoint vpn.example.com:7949
  grapevine client add phone --network blue --qr
  grapevine client add laptop --network blue --file laptop.conf
  grapevine client add laptop --network blue --public-key "$(wg pubkey < laptop.key)"`,
		Args: named("a client", 1, 1),
	}, patience, func(ctx context.Context, c *api.Client, names []string) (clientFile, error) {
		r.Name = names[0]
		if show.file != "" && show.file != "-" {
			if _, err := os.Lstat(show.file); err == nil {
				return clientFile{}, fmt.Errorf("add client %s: the file %s is there already: name another one", r.Name, show.file)
			}
		}
		if r.PublicKey == "" {
			key, err := ecdh.X25519().GenerateKey(rand.Reader)
			if err != nil {
				return clientFile{}, fmt.Errorf("make a key for client %s: %w", r.Name, err)
			}
			private = base64.StdEncoding.EncodeToString(key.Bytes())
			r.PublicKey = base64.StdEncoding.EncodeToString(key.PublicKey().Bytes())
		}
		added, err := c.NetworkClients().Add(ctx, r)
		return clientFile{AddedClient: added, PrivateKey: private}, err
	}, func(w io.Writer, f clientFile) error { return show.print(w, f) })
	f := c.Flags()
	f.StringVar(&r.Network, "network", "", "the network that it comes into")
	f.StringVar(&r.Endpoint, "endpoint", "", "where it finds this host, HOST:PORT (default: this host's own address)")
	f.StringVar(&r.PublicKey, "public-key", "", "the client's public key; then the file has no private one")
	f.StringVar(&show.file, "file", "", "write the file there, for its owner's eyes only; - is the output, without a QR code")
	f.BoolVar(&show.qr, "qr", false, "print the QR code alone")
	return c
}

// clientFile is what a client needs to know.
type clientFile struct {
	api.AddedClient
	PrivateKey string `json:"private_key,omitempty"` // "": the client has it
}

// String is the file, as wg-quick(8) and all WireGuard apps read it.
func (f clientFile) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# client %s of network %s\n[Interface]\n", f.Name, f.Network)
	if f.PrivateKey == "" {
		b.WriteString("# PrivateKey = the client's own\n")
	} else {
		fmt.Fprintf(&b, "PrivateKey = %s\n", f.PrivateKey)
	}
	fmt.Fprintf(&b, "Address = %s\n", joined(f.Addrs))
	if len(f.DNS) > 0 {
		fmt.Fprintf(&b, "DNS = %s, %s\n", joined(f.DNS), f.Network)
	}
	fmt.Fprintf(&b, "MTU = %d\n\n[Peer]\nPublicKey = %s\nAllowedIPs = %s\nEndpoint = %s\nPersistentKeepalive = 25\n", f.MTU, f.Key, joined(f.Allowed), f.Endpoint)
	return b.String()
}

func joined[T netip.Addr | netip.Prefix](list []T) string {
	var texts []string
	for _, one := range list {
		texts = append(texts, fmt.Sprint(one))
	}
	return strings.Join(texts, ", ")
}

// print writes the file where it is wanted. One with a private key is for its owner's eyes.
func (s clientShow) print(w io.Writer, f clientFile) error {
	switch {
	case s.file != "" && s.file != "-":
		out, err := os.OpenFile(s.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			_, err = out.WriteString(f.String())
			err = errors.Join(err, out.Close())
		}
		if err != nil {
			return fmt.Errorf("client %s is added, and its file is not written: %w; grapevine client remove %s, and add it again", f.Name, err, f.Name)
		}
		if !s.qr {
			fmt.Fprintf(w, "client %s is added: its file is %s\n", f.Name, s.file)
			return nil
		}
	case s.file == "-" || !s.qr:
		fmt.Fprint(w, f)
	}
	if s.qr || s.file == "" && onTerminal(w) {
		return drawQR(w, f.String())
	}
	return nil
}

func onTerminal(w io.Writer) bool {
	file, is := w.(*os.File)
	if !is {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

func newClientList() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "list",
		Short: "List the clients of all hosts",
		Long:  `List the clients of all hosts. When one was heard last, and from where, the host knows at which it was added.`,
		Example: `  grapevine client list
  grapevine client list -o json | jq -r '.[] | select(.here) | .name'`,
		Args: noNames,
	}, patience, list(of((*api.Client).NetworkClients, api.NetworkClientCalls.List)), showClients)
}

func showClients(w io.Writer, all []api.NetworkClient) error {
	return table(w, "CLIENT\tNETWORK\tADDRESS\tHOST\tHEARD\tNOTE", func(row func(string, ...any)) {
		for _, c := range all {
			heard := "-"
			switch {
			case !c.Here:
			case c.Seen.IsZero():
				heard = "never"
			default:
				heard = fmt.Sprintf("%s ago, from %v", time.Since(c.Seen).Round(time.Second), c.At)
			}
			row("%s\t%s\t%s\t%s\t%s\t%s", c.Name, c.Network, joined(c.Addrs), c.Host, heard, dash(c.Lost))
		}
	})
}

func newClientRemove() *cobra.Command {
	return verb(&cobra.Command{
		Use: "remove NAME", Aliases: []string{"rm", "delete"},
		Short: "Remove a client",
		Long: `Remove a client, at the host where it was added. From then on no packet of it passes, and what it still has of
its file opens nothing. Its address is free.`,
		Example: `  grapevine client remove laptop`,
		Args:    named("a client", 1, 1),
		ValidArgsFunction: complete(func(ctx context.Context, c *api.Client) (map[string]string, error) {
			all, err := c.NetworkClients().List(ctx)
			names := map[string]string{}
			for _, one := range all {
				names[one.Name] = "on network " + one.Network
			}
			return names, err
		}),
	}, patience, func(ctx context.Context, c *api.Client, names []string) (api.Done, error) {
		return c.NetworkClients().Remove(ctx, api.RemoveClientRequest{Name: names[0]})
	}, showDone)
}
