package sshkey

import (
	"crypto/ed25519"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSSHKeygen: what ssh-keygen makes is read, and what is written is what it makes.
func TestSSHKeygen(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	} else if err != nil {
		t.Skip("there is no ssh-keygen")
	}
	dir := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		c := exec.Command("ssh-keygen", args...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("ssh-keygen %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	run("-q", "-t", "ed25519", "-N", "", "-C", "alice on a laptop", "-f", "key")
	line, err := os.ReadFile(filepath.Join(dir, "key.pub"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := Parse(string(line))
	if err != nil || !strings.HasPrefix(string(line), Line(key)+" ") {
		t.Fatalf("%s is read as %s, %v", line, Line(key), err)
	}
	if again, err := Parse(Line(key)); err != nil || again != key {
		t.Errorf("%s: %v", Line(key), err)
	}
	if shown := run("-l", "-f", "key.pub"); !strings.Contains(shown, Fingerprint(key)) {
		t.Errorf("%s, want %s", shown, Fingerprint(key))
	}
	message := []byte("grapevine policy\n")
	if err := os.WriteFile(filepath.Join(dir, "message"), message, 0o600); err != nil {
		t.Fatal(err)
	}
	run("-q", "-Y", "sign", "-n", "purpose", "-f", "key", "message")
	text, err := os.ReadFile(filepath.Join(dir, "message.sig"))
	if err != nil {
		t.Fatal(err)
	}
	signer, signature, err := ParseSignature(text, "purpose")
	if err != nil || signer != key || !ed25519.Verify(key[:], Signed("purpose", message), signature) {
		t.Fatalf("%v: %s", err, text)
	}
	if ed25519.Verify(key[:], Signed("another", message), signature) {
		t.Error("it is good for another purpose")
	}
	if _, _, err := ParseSignature(text, "another"); err == nil {
		t.Error("a signature for another purpose is read")
	}
	for n := range text {
		cutOff := text[:n]
		if _, _, err := ParseSignature(cutOff, "purpose"); err == nil && n < len(text)-1 {
			t.Errorf("the first %d bytes of a signature are read", n)
		}
	}
	private, err := os.ReadFile(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(string(private)); err == nil || !strings.Contains(err.Error(), "private key") {
		t.Errorf("a private key: %v", err)
	}
}

func TestParseRefuses(t *testing.T) {
	good := Line(Key{1, 2, 3})
	for text, want := range map[string]string{
		"": "empty", " \n": "empty", "AAAA": "no line of a .pub file", "ssh-rsa AAAA": "ssh-keygen -t ed25519", "ssh-ed25519": "no line of a .pub file", "ssh-ed25519 %": "base64",
		good[:len(good)-4]: "no whole key", "ssh-ed25519 AAAA": "no whole key", "ssh-ed25519 " + strings.Repeat("/", 64): "no whole key",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, _, err := ParseSignature([]byte("-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n"), "x"); err == nil {
		t.Error("three bytes are a signature")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Line(Key{1}))
	f.Fuzz(func(t *testing.T, text string) {
		if key, err := Parse(text); err == nil {
			if again, err := Parse(Line(key)); err != nil || again != key {
				t.Errorf("%q is %x", text, key)
			}
		}
		_, _, _ = ParseSignature([]byte(text), "x")
	})
}
