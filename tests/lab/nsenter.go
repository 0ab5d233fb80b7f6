package lab

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// enterNet runs `ip` command lines in the network namespace of a process, with
// the machine's own PIDs and files.
func enterNet(ctx context.Context, pid int, lines string) error {
	cmd := exec.CommandContext(ctx, "nsenter", "--net", "--target", strconv.Itoa(pid), "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(lines)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.ReplaceAll(lines, "\n", "; "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
