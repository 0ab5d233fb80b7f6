package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/policy/sign"
	"github.com/grapevine-net/grapevine/sshkey"
)

// applySigned signs policies, and has the host write what is signed.
func applySigned(ctx context.Context, c *api.Client, file, text string) (api.Done, error) {
	list, err := sign.Read(text)
	if err != nil {
		return api.Done{}, err
	}
	return signAll(ctx, c, file, list)
}

// deleteSigned signs that a policy is deleted.
func deleteSigned(ctx context.Context, c *api.Client, file, kind, network, name string) (api.Done, error) {
	one, err := sign.Deletion(kind, network, name)
	if err != nil {
		return api.Done{}, err
	}
	return signAll(ctx, c, file, []api.SignedPolicy{one})
}

func signAll(ctx context.Context, c *api.Client, file string, list []api.SignedPolicy) (api.Done, error) {
	key, err := publicKey(ctx, file)
	if err != nil {
		return api.Done{}, err
	}
	ask := api.SigningRequest{Key: sshkey.Line(key)}
	for _, p := range list {
		ask.Policies = append(ask.Policies, sign.ID(p))
	}
	known, err := c.Policies().Signing(ctx, ask)
	if err != nil {
		return api.Done{}, err
	}
	for i := range list {
		if list[i], err = sign.Next(list[i], key, known); err != nil {
			return api.Done{}, err
		}
	}
	signed, err := withKeygen(ctx, file, key, list)
	if err != nil {
		return api.Done{}, err
	}
	return c.Policies().ApplySigned(ctx, api.SignedRequest{Policies: signed})
}

// publicKey is the public half of a key: beside its file, or of that file itself.
func publicKey(ctx context.Context, file string) (key sshkey.Key, err error) {
	beside := strings.TrimSuffix(file, ".pub") + ".pub"
	text, err := os.ReadFile(beside)
	if errors.Is(err, os.ErrNotExist) && beside != file {
		beside = file
		text, err = keygen(ctx, "-y", "-f", file)
	}
	if err != nil {
		return key, fmt.Errorf("read the public half of the key %s: %w", file, err)
	}
	if key, err = sshkey.Parse(string(text)); err != nil {
		return key, fmt.Errorf("the public half of the key %s: %w", beside, err)
	}
	return key, nil
}

// withKeygen has ssh-keygen sign all at once: it asks for a passphrase once.
func withKeygen(ctx context.Context, file string, key sshkey.Key, list []api.SignedPolicy) (signed []api.SignedPolicy, err error) {
	dir, err := os.MkdirTemp("", "grapevine-sign-")
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	defer os.RemoveAll(dir)
	var names []string
	for i, p := range list {
		names = append(names, filepath.Join(dir, strconv.Itoa(i)))
		if err := os.WriteFile(names[i], sign.Message(p), 0o600); err != nil {
			return nil, fmt.Errorf("sign: %w", err)
		}
	}
	if _, err := keygen(ctx, append([]string{"-Y", "sign", "-n", sign.Purpose, "-f", file}, names...)...); err != nil {
		return nil, fmt.Errorf("sign with the key %s: %w", file, err)
	}
	for i, p := range list {
		text, err := os.ReadFile(names[i] + ".sig")
		if err != nil {
			return nil, fmt.Errorf("sign with the key %s: %w", file, err)
		}
		by, signature, err := sshkey.ParseSignature(text, sign.Purpose)
		if err == nil && by != key {
			err = fmt.Errorf("it is of the key %s, and its public half in the file beside it is %s", sshkey.Fingerprint(by), sshkey.Fingerprint(key))
		}
		if err == nil {
			p, err = sign.Signed(p, signature)
		}
		if err != nil {
			return nil, fmt.Errorf("sign with the key %s: %w", file, err)
		}
		signed = append(signed, p)
	}
	return signed, nil
}

// keygen runs ssh-keygen, which asks for a passphrase by itself, at the terminal.
func keygen(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "ssh-keygen", args...)
	var said strings.Builder
	cmd.Stderr, cmd.Stdin = &said, os.Stdin
	out, err := cmd.Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, errors.New("there is no ssh-keygen here, which signs: install OpenSSH's client (openssh-client), 8.1 or later")
	case err != nil:
		return nil, fmt.Errorf("ssh-keygen: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return out, nil
}
