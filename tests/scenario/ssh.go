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

var sshCommands = map[string]command{"sshd": sshd}

// sshd HOST CLIENT: Debian's sshd runs on HOST, and CLIENT's root, who knows it, may log in there as root.
func sshd(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) != 2 {
		return "", usageError("usage: sshd HOST CLIENT")
	}
	h, err := s.host(args[0])
	if err != nil {
		return "", err
	}
	client, err := s.host(args[1])
	if err != nil {
		return "", err
	}
	root, err := lab.ModuleRoot()
	if err != nil {
		return "", err
	}
	script := exec.CommandContext(ctx, filepath.Join(root, "scripts/sshd"))
	if tree := s.opts.Tree; tree != "" {
		script.Args = append(script.Args, filepath.Base(tree))
	}
	script.Stderr = os.Stderr
	dir, err := script.Output()
	if err != nil {
		return "", fmt.Errorf("scripts/sshd: %w", err)
	}
	all, err := exec.CommandContext(ctx, "tar", "-C", strings.TrimSpace(string(dir)), "-c", "etc", "usr").Output()
	if err != nil {
		return "", fmt.Errorf("pack OpenSSH: %w", err)
	}
	for _, one := range []*lab.Host{h, client} {
		if _, err := one.ExecInput(ctx, all, "tar", "-x", "-C", "/", "--keep-directory-symlink", "--no-same-owner"); err != nil {
			return "", err
		}
	}
	key, err := client.Exec(ctx, "sh", "-c", `mkdir -p -m 700 /root/.ssh && ssh-keygen -q -t ed25519 -N "" -f /root/.ssh/id_ed25519 </dev/null && cat /root/.ssh/id_ed25519.pub`)
	if err != nil {
		return "", err
	}
	const serve = `mkdir -p -m 700 /root/.ssh /run/sshd /var/empty && printf %s "$1" >>/root/.ssh/authorized_keys && chmod 600 /root/.ssh/authorized_keys &&
{ grep -q ^sshd: /etc/passwd || echo 'sshd:x:74:65534::/run/sshd:/usr/sbin/nologin' >>/etc/passwd; } &&
ssh-keygen -q -t ed25519 -N "" -f /etc/ssh/ssh_host_ed25519_key </dev/null && printf 'UsePAM no\nListenAddress %s\n' "$2" >/etc/ssh/sshd_config &&
/usr/sbin/sshd -E /var/log/sshd.log && cat /etc/ssh/ssh_host_ed25519_key.pub`
	public, err := h.Exec(ctx, "sh", "-c", serve, "sshd", key, h.Addr().String())
	if err != nil {
		return "", err
	}
	_, err = client.Exec(ctx, "sh", "-c", `echo "$1 $2" >>/root/.ssh/known_hosts`, "sshd", h.Addr().String(), strings.TrimSpace(public))
	return "", err
}
