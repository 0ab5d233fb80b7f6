package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

// TestReportHasNoSecrets: a key and a token that the agent's answers have in them are not in the report.
func TestReportHasNoSecrets(t *testing.T) {
	const key, old, token = "kN9x3uJq1mVf0y7oPzLwT2cHs8bRg5dEaYi6XjUvQnM=", "AAAAAAAAAAAAAAAAAAAAAA==", "correct-horse-battery"
	dir := t.TempDir()
	for name, text := range map[string]string{"key": key + "\n", "token": token + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GRAPEVINE_KEY_FILE", filepath.Join(dir, "key"))
	t.Setenv("GRAPEVINE_METRICS_TOKEN_FILE", filepath.Join(dir, "token"))
	h := vineyard()
	h.Status = func(context.Context) (api.Status, error) {
		return api.Status{Name: "host1", Problems: []api.Problem{{What: "GRAPEVINE_KEY=" + key + " and " + old, Do: "Authorization: Bearer " + token}}}, nil
	}
	h.Doctor = func(context.Context) (api.Diagnosis, error) {
		return api.Diagnosis{Agent: true, Checks: []api.Check{{What: "the token " + token}}}, nil
	}
	file := filepath.Join(dir, "r.tar.gz")
	out, err := run(t, h, "report", "--no-host", file)
	if err != nil || !strings.HasPrefix(out, "Wrote "+file+": ") {
		t.Fatalf("%v\n%s", err, out)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	files := unpack(t, file)
	for name, text := range files {
		for _, s := range []string{key, old, token} {
			if strings.Contains(text, s) {
				t.Errorf("%s in %s:\n%s", s, name, text)
			}
		}
	}
	for name, want := range map[string]string{
		"status.json": `"name": "host1"`, "endpoints.json": `"name": "db"`, "doctor.json": "the token " + leftOut, "README.txt": "nodes.json", "flows.json": "not to be had: ",
	} {
		if !strings.Contains(files["r/"+name], want) {
			t.Errorf("%s has no %q:\n%s", name, want, files["r/"+name])
		}
	}
	if _, err := run(t, h, "report", file); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("a second one: %v", err)
	}
}

func TestRedact(t *testing.T) {
	for text, want := range map[string]string{
		"docker plugin set x GRAPEVINE_KEY=abcdefgh12345678 y":              "docker plugin set x GRAPEVINE_KEY=(left out) y",
		`"GRAPEVINE_KEY": "abcdefgh12345678"`:                               `"GRAPEVINE_KEY": "(left out)"`,
		"grapevine agent --key=abcdefgh12345678 --join=10.0.0.1":            "grapevine agent --key=(left out) --join=10.0.0.1",
		"node 0123456789abcdef in cluster 0123456789abcdef0123456789abcdef": "node 0123456789abcdef in cluster 0123456789abcdef0123456789abcdef",
		"GRAPEVINE_KEY_FILE=/etc/key":                                       "GRAPEVINE_KEY_FILE=/etc/key",
	} {
		if got := string(redact([]byte(text), nil)); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
	if _, err := writeReport(filepath.Join(t.TempDir(), "r"), []part{{"a", []byte("x")}}, []string{leftOut}); err == nil {
		t.Error("a secret that stays is written")
	}
}

func unpack(t *testing.T, name string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		text, readErr := io.ReadAll(r)
		if err != nil || readErr != nil {
			t.Fatal(err, readErr)
		}
		files[h.Name] = string(text)
	}
}
