package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/grapevine-net/grapevine/tests/lab"
)

var firewallCommands = map[string]command{"firewalls": firewalls}

// bus is a system bus on which everybody may say everything, as root may anyway.
const bus = `<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/></policy></busconfig>
`

// firewalls HOST: ufw and firewalld are installed there, and do not run; `firewalld-start`
// starts a system bus and firewalld.
func firewalls(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) != 1 {
		return "", usageError("usage: firewalls HOST")
	}
	h, err := s.host(args[0])
	if err != nil {
		return "", err
	}
	root, err := lab.ModuleRoot()
	if err != nil {
		return "", err
	}
	script := exec.CommandContext(ctx, filepath.Join(root, "scripts/firewalls"))
	if tree := s.opts.Tree; tree != "" {
		script.Args = append(script.Args, filepath.Base(tree))
	}
	script.Stderr = os.Stderr
	dir, err := script.Output()
	if err != nil {
		return "", fmt.Errorf("scripts/firewalls: %w", err)
	}
	all, err := exec.CommandContext(ctx, "tar", "-C", strings.TrimSpace(string(dir)), "-c", "etc", "usr").Output()
	if err != nil {
		return "", fmt.Errorf("pack the firewalls: %w", err)
	}
	if _, err := h.ExecInput(ctx, all, "tar", "-x", "-C", "/", "--keep-directory-symlink", "--no-same-owner"); err != nil {
		return "", err
	}
	const start = `#!/bin/sh
mkdir -p /run/dbus
dbus-daemon --config-file=/etc/lab-bus.conf --fork --nopidfile &&
setsid /usr/sbin/firewalld --nofork --nopid >/var/log/firewalld.out 2>&1 &
until firewall-cmd --state >/dev/null 2>&1; do sleep 0.1; done
`
	_, err = h.Exec(ctx, "sh", "-c", `printf %s "$1" >/etc/lab-bus.conf; printf %s "$2" >/usr/sbin/firewalld-start; chmod 755 /usr/sbin/firewalld-start`, "firewalls", bus, start)
	return "", err
}
