// Package resolved has systemd-resolved, where it runs, ask a server about the names of some domains: split DNS, by an
// interface that exists as long as they do.
package resolved

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Servers lists systemd-resolved's own servers, in the form of resolv.conf(5).
const Servers = "/run/systemd/resolve/resolv.conf"

// program is what speaks to it, over D-Bus.
const program = "resolvectl"

// timeout bounds a call: it answers at once, or its bus does not.
const timeout = 5 * time.Second

// Runs reports whether systemd-resolved does, and can be told.
func Runs() bool {
	_, err := os.Stat(Servers)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, err = exec.LookPath(program)
	return err == nil
}

// domain is what it takes for a domain, and for nothing else: "~." would have it ask for all names there are, a dash begins an
// option, and of one name that is none it refuses all.
var domain = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*$`)

// Set has it ask a server about names of the domains, and the names without a dot in them too, as long as the interface is
// there. It does nothing where that is so already.
func Set(ctx context.Context, device string, server netip.Addr, domains []string) error {
	domains = slices.DeleteFunc(slices.Clone(domains), func(d string) bool { return !domain.MatchString(d) })
	for _, c := range calls(device, server, domains) {
		have, err := run(ctx, c[0], device)
		if err != nil {
			return err
		}
		if told(have, c[2:]) {
			continue
		}
		if _, err := run(ctx, c...); err != nil {
			return err
		}
	}
	return nil
}

// calls are what it is told: by which interface which server is asked, and about what. The first call with the last
// arguments left out asks what it has been told.
func calls(device string, server netip.Addr, domains []string) [][]string {
	return [][]string{
		{"default-route", device, "no"},
		{"dns", device, server.String()},
		append([]string{"domain", device}, orNone(domains)...),
	}
}

// orNone is what it is told where there are no domains: without a word it would say which there are.
func orNone(domains []string) []string {
	if len(domains) == 0 {
		return []string{""}
	}
	return domains
}

// told reads what it says that it was told: "Link 7 (gv0): blue red".
func told(text string, want []string) bool {
	_, list, ok := strings.Cut(strings.TrimSpace(text), "):")
	return ok && slices.Equal(strings.Fields(list), strings.Fields(strings.Join(want, " ")))
}

func run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
