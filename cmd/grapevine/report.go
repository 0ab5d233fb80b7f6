package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/config"
)

// report is what `grapevine report` has made.
type report struct {
	File  string   `json:"file"`
	Files []string `json:"files"` // in it
	Bytes int64    `json:"bytes"`
}

func newReport() *cobra.Command {
	noHost := false
	c := &cobra.Command{
		Use:   "report [FILE]",
		Short: "Write a file for a report of a bug",
		Long: `Write a file (tar, gzip) for a report of a bug: what status, doctor, ps, nodes, networks, ring, flows
and metrics say, and of this host its versions, addresses, routes, firewall rules and the end of the
agent's log. Keys and tokens are left out, and the file is not written if one were in it. Names and
addresses of hosts, networks and containers are in it: look at it before you hand it on.

It needs no agent that runs. With -H nothing is in it but what the other host's agent says.`,
		Example: `  grapevine report
  grapevine report /root/report.tar.gz && tar -tzf /root/report.tar.gz
  grapevine report --no-host /root/brief.tar.gz    # nothing of the firewall, routes and logs`,
		Args: named("a file", 0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			format, err := outputFormat(c)
			if err != nil {
				return err
			}
			name := strings.Join(args, "")
			if name == "" {
				host, _ := os.Hostname()
				name = fmt.Sprintf("grapevine-report-%s-%s.tar.gz", cmp.Or(c.Flag("host").Value.String(), host), time.Now().Format("20060102-150405"))
				name = regexp.MustCompile(`[^\w.-]+`).ReplaceAllString(name, "-")
			}
			if _, err := os.Lstat(name); err == nil {
				return fmt.Errorf("%s is there already: name another file", name)
			}
			r, err := writeReport(name, gather(c, noHost), secrets(c))
			if err != nil {
				return err
			}
			if format == "json" {
				return printJSON(c.OutOrStdout(), r)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "Wrote %s: %s, %d kB. No key and no token is in it; names, addresses and firewall rules are.\nTo look at it first: tar -xzOf %s | less\n",
				r.File, words.Plural(len(r.Files), "file"), (r.Bytes+1023)/1024, r.File)
			return err
		},
	}
	c.Flags().BoolVar(&noHost, "no-host", false, "leave out what the agent does not tell: firewall, routes, logs")
	return c
}

// part is a file of the report.
type part struct {
	name string
	text []byte
}

// reportPatience bounds each question.
const reportPatience = 20 * time.Second

// gather asks for all parts. What cannot be had says why.
func gather(c *cobra.Command, noHost bool) (parts []part) {
	add := func(name string, text []byte, err error) {
		if err != nil {
			text = append(text, "\nnot to be had: "+err.Error()+"\n"...)
		}
		parts = append(parts, part{name, text})
	}
	ask := func(name string, f func(context.Context, *api.Client) (any, error)) {
		ctx, cancel := context.WithTimeout(c.Context(), reportPatience)
		defer cancel()
		client, err := newClient(c)
		var text bytes.Buffer
		if err == nil {
			var value any
			if value, err = f(ctx, client); err == nil {
				err = printJSON(&text, value)
			}
		}
		add(name, text.Bytes(), err)
	}
	ask("status.json", func(ctx context.Context, a *api.Client) (any, error) { return a.Status(ctx) })
	ask("nodes.json", func(ctx context.Context, a *api.Client) (any, error) { return a.Nodes(ctx) })
	ask("networks.json", func(ctx context.Context, a *api.Client) (any, error) { return a.Networks(ctx) })
	ask("endpoints.json", func(ctx context.Context, a *api.Client) (any, error) { return a.Endpoints(ctx) })
	ask("ring.json", func(ctx context.Context, a *api.Client) (any, error) { return a.Ring(ctx) })
	ask("flows.json", func(ctx context.Context, a *api.Client) (any, error) { return a.Flows(ctx) })
	client, err := newClient(c)
	if err == nil {
		ctx, cancel := context.WithTimeout(c.Context(), reportPatience)
		defer cancel()
		var text bytes.Buffer
		err = client.Metrics(ctx, &text)
		add("metrics.txt", text.Bytes(), err)
	}
	if d, ok := examine(c); ok {
		text, err := json.MarshalIndent(d, "", "  ")
		add("doctor.json", text, err)
	}
	if noHost || c.Flag("host").Changed {
		return parts
	}
	for _, line := range []string{
		"uname -a", "cat /etc/os-release", "uptime", "docker version", "docker plugin ls", "docker network ls", "ovs-vsctl --version",
		"ip -d address", "ip route show table all", "ip -6 route show table all", "ip rule", "ip -6 rule",
		"iptables-save", "ip6tables-save", "nft list ruleset", "ss -lntup", "sysctl net.ipv4.ip_forward net.ipv4.conf.all.rp_filter net.ipv6.conf.all.forwarding",
		"journalctl --no-pager -u grapevine -n 3000", "journalctl --no-pager -u docker -n 3000 --grep grapevine|plugin=",
	} {
		ctx, cancel := context.WithTimeout(c.Context(), reportPatience)
		argv := strings.Fields(line)
		text, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
		cancel()
		add("host/"+strings.Trim(regexp.MustCompile(`[^\w.]+`).ReplaceAllString(line, "-"), "-")+".txt", text, err)
	}
	return parts
}

// secrets are those that this host has.
func secrets(c *cobra.Command) (list []string) {
	files := []string{config.Default().KeyFile, config.Default().MetricsTokenFile}
	if cfg, err := config.Load(c.Flags(), os.Environ(), os.ReadFile); err == nil {
		files = append(files, cfg.KeyFile, cfg.MetricsTokenFile)
	}
	for _, f := range files {
		text, _ := os.ReadFile(f) // none that can be read is none that could be in the report
		list = append(list, strings.Fields(string(text))...)
	}
	for _, e := range os.Environ() {
		if key, found := strings.CutPrefix(e, "GRAPEVINE_KEY="); found {
			list = append(list, strings.Split(key, ",")...)
		}
	}
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), func(w string) bool { return len(w) < 8 })
}

// leftOut stands for what is secret.
const leftOut = "(left out)"

// aSecret is what looks like one that this host may not know: another host's, or an old one.
var aSecret = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(GRAPEVINE_KEY["']?[=:] *["']?|--key[= ]|Bearer )[\w+/=,-]{8,}|\b[A-Za-z0-9+/]{43}=|\b[A-Za-z0-9+/]{22}==`)
})

// redact leaves out what is secret.
func redact(text []byte, secrets []string) []byte {
	for _, s := range secrets {
		text = bytes.ReplaceAll(text, []byte(s), []byte(leftOut))
	}
	return aSecret().ReplaceAll(text, []byte("${1}"+leftOut))
}

// writeReport makes the file, for its owner alone.
func writeReport(name string, parts []part, secrets []string) (r report, err error) {
	r.File = name
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	put := func(p part) error {
		for _, s := range secrets {
			if bytes.Contains(p.text, []byte(s)) {
				return fmt.Errorf("make the report: %s has a secret in it; please report that, without it", p.name)
			}
		}
		r.Files = append(r.Files, p.name)
		dir := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(name), ".gz"), ".tar")
		if err := archive.WriteHeader(&tar.Header{Name: dir + "/" + p.name, Mode: 0o600, Size: int64(len(p.text)), ModTime: time.Now()}); err != nil {
			return err
		}
		_, err := archive.Write(p.text)
		return err
	}
	about := fmt.Sprintf("grapevine %s, report of %s\n\nKeys and tokens were left out: %s stands for them. What is here:\n\n", programVersion(), time.Now().Format(time.RFC3339), leftOut)
	for _, p := range parts {
		about += "  " + p.name + "\n"
	}
	for _, p := range append([]part{{"README.txt", []byte(about)}}, parts...) {
		p.text = redact(p.text, secrets)
		if err := put(p); err != nil {
			return r, err
		}
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		return r, err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return r, fmt.Errorf("write the report: %w", err)
	}
	r.Bytes, err = io.Copy(f, &out)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(name)
		return r, fmt.Errorf("write the report: %w", err)
	}
	return r, nil
}
