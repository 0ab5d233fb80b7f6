package scenario

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// engineAtLeast is the condition [engine:28]: the hosts' Docker Engine, from tree or
// the machine's own, is of that release or a later one.
func engineAtLeast(tree, condition string) (bool, error) {
	number, found := strings.CutPrefix(condition, "engine:")
	want, err := strconv.Atoi(number)
	if !found || err != nil {
		return false, fmt.Errorf("condition [%s] is unknown: there is [engine:28], and the like", condition)
	}
	if tree == "" {
		tree = "/"
	}
	out, err := exec.Command("chroot", tree, "dockerd", "--version").Output()
	if err != nil {
		return false, fmt.Errorf("ask the Docker Engine of %s for its version: %w", tree, err)
	}
	var have int // "Docker version 28.5.2+dfsg4, build ..."
	if _, err := fmt.Sscanf(string(out), "Docker version %d.", &have); err != nil {
		return false, fmt.Errorf("read the version of the Docker Engine of %s from %q: %w", tree, out, err)
	}
	return have >= want, nil
}
