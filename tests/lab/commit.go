package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// InstallAgent gives the host the program of a commit of this repository, or with ""
// the lab's own, for the agent's next start; after a boot it has the lab's own again.
func (h *Host) InstallAgent(ctx context.Context, commit string) error {
	name := "grapevine"
	if commit != "" {
		name += "-" + commit
		if err := h.lab.buildCommit(ctx, commit, filepath.Join(h.lab.share(), "bin", name)); err != nil {
			return err
		}
	}
	_, err := h.Exec(ctx, "ln", "-sfn", shareMount+"/bin/"+name, "/usr/local/bin/grapevine")
	return err
}

// buildCommit builds a commit's program, unless that was done before.
func (l *Lab) buildCommit(ctx context.Context, commit, to string) error {
	l.buildMu.Lock()
	defer l.buildMu.Unlock()
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	root, err := ModuleRoot()
	if err != nil {
		return err
	}
	git := func(args ...string) ([]byte, error) { // also in a clone that another user made
		return exec.CommandContext(ctx, "git", append([]string{"-c", "safe.directory=*", "-C", root}, args...)...).CombinedOutput()
	}
	there := func() ([]byte, error) { return git("rev-parse", "--verify", "--quiet", commit+"^{commit}") }
	if _, err := there(); err != nil {
		_, _ = git("fetch", "--quiet", "--unshallow") // a clone without its history
		if out, err := there(); err != nil {
			return fmt.Errorf("commit %s is not in this clone, so that its program cannot be built: get the whole history (git fetch --unshallow): %w: %s", commit, err, out)
		}
	}
	tree, err := os.MkdirTemp("", "grapevine-"+commit)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	build := exec.CommandContext(ctx, "bash", "-ec",
		`set -o pipefail; git -c 'safe.directory=*' -C "$1" archive "$2" | tar -x -C "$3"; cd "$3"; CGO_ENABLED=0 exec go build -trimpath -ldflags "-s -w -X main.version=$2" -o "$4" ./cmd/grapevine`,
		"build", root, commit, tree, to)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build commit %s: %w: %s", commit, err, out)
	}
	return nil
}
