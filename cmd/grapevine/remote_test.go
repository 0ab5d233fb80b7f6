package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/host/socket"
)

func TestRemote(t *testing.T) {
	for at, want := range map[string]string{
		"ssh://nuc1":              "ssh -T -o ConnectTimeout=10 -- nuc1 sh -c 'PATH=$PATH:/usr/local/bin:/var/lib/grapevine/bin; exec grapevine dial-stdio'",
		"ssh://me@[fd00::1]:2222": "ssh -T -o ConnectTimeout=10 -l me -p 2222 -- fd00::1 sh -c 'PATH=$PATH:/usr/local/bin:/var/lib/grapevine/bin; exec grapevine dial-stdio'",
		"nuc1":                    "", "tcp://nuc1": "", "ssh://": "", "ssh://nuc1/path": "",
	} {
		r, err := parseRemote(at)
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "say ssh://HOST") {
				t.Errorf("%s: %v", at, err)
			}
			continue
		}
		if got := strings.Join(r.argv(), " "); err != nil || got != want {
			t.Errorf("%s: %v\n%s\n%s", at, err, got, want)
		}
	}
	r := remote{host: "-oProxyCommand=evil", run: "/it's"}
	if argv := r.argv(); slices.Index(argv, "--") > slices.Index(argv, r.host) || !strings.Contains(argv[len(argv)-1], `--run='\''/it'\''\'\'''\''s'\''`) {
		t.Errorf("%q", argv)
	}
}

// TestOverSSH asks an agent by a program that is called ssh and runs what it is told here.
func TestOverSSH(t *testing.T) {
	dir, run := t.TempDir(), t.TempDir()
	script := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script("ssh", "while [ \"$1\" != -- ]; do shift; done\n[ \"$2\" = nuc1 ] || { echo no route to $2 >&2; exit 255; }\nshift 2\nexec sh -c \"$*\"\n")
	script("grapevine", "GRAPEVINE_TEST_MAIN=1 exec "+exe+" \"$@\"\n")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	listener, err := socket.Listen(t.Context(), filepath.Join(run, "grapevine.sock"), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- api.Serve(ctx, listener, api.Handlers{
			Nodes: vineyard().Nodes, Endpoints: vineyard().Endpoints, Networks: vineyard().Networks, Ring: vineyard().Ring,
			Doctor: func(context.Context) (api.Diagnosis, error) { return api.Diagnosis{Agent: true, Name: "nuc1"}, nil },
		})
	}()
	defer func() {
		cancel()
		<-done
	}()
	ask := func(args ...string) (string, error) {
		root := newRoot()
		var out strings.Builder
		root.SetOut(&out)
		root.SetArgs(append([]string{"--run=" + run}, args...))
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	for args, want := range map[string]string{"show app": "container", "ps": "10.128.0.2", "doctor": "All is well"} {
		if out, err := ask(append(strings.Fields(args), "-H", "ssh://nuc1")...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
	if _, err := ask("ps", "-H", "ssh://nuc2"); err == nil || !strings.Contains(err.Error(), "the agent of nuc2 could not be asked over ssh") {
		t.Errorf("a host that is not there: %v", err)
	}
	if _, err := ask("doctor", "-H", "ssh://nuc2"); err != errNotAsked {
		t.Errorf("a doctor that is not there: %v", err)
	}
	if _, err := ask("cleanup", "-H", "ssh://nuc1"); err == nil || !strings.Contains(err.Error(), "is about this host") {
		t.Errorf("cleanup elsewhere: %v", err)
	}
}
