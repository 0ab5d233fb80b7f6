package lab

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// The shared directory, /lab in every host:
//
//	bin/labhost    this program, for the roles of init.go
//	bin/grapevine  the agent
//	image.tar      the containers' image, for `docker load`
//	plugin/        the managed plugin, for `docker plugin create`
//	examples/      those of the source tree; scripts/ and docs/ too
//	log/HOST/      what the daemons of a host say
const labhost = shareMount + "/bin/labhost"

func (l *Lab) fillShare() error {
	if err := os.MkdirAll(filepath.Join(l.share(), "bin"), 0o755); err != nil {
		return err
	}
	if err := copyFile("/proc/self/exe", filepath.Join(l.share(), "bin/labhost")); err != nil {
		return err
	}
	if err := l.installAgent(); err != nil {
		return err
	}
	if l.opts.Plugin != "" {
		if err := copyTree(l.opts.Plugin, filepath.Join(l.share(), "plugin")); err != nil {
			return err
		}
	}
	if err := l.copyExamples(); err != nil {
		return err
	}
	root, err := ModuleRoot()
	if err != nil {
		return err
	}
	for _, dir := range []string{"scripts", "docs"} {
		if err := copyTree(filepath.Join(root, dir), filepath.Join(l.share(), dir)); err != nil {
			return err
		}
	}
	return writeImage(filepath.Join(l.share(), "image.tar"))
}

// Share copies a program to where all hosts find it, and returns its name there.
func (l *Lab) Share(file string) (string, error) {
	name := filepath.Join("bin", filepath.Base(file))
	return filepath.Join(shareMount, name), copyFile(file, filepath.Join(l.share(), name))
}

// copyExamples copies the examples, which are for Docker Compose.
func (l *Lab) copyExamples() error {
	if l.opts.Compose == "" {
		return nil
	}
	root, err := ModuleRoot()
	if err != nil {
		return err
	}
	return copyTree(filepath.Join(root, "examples"), filepath.Join(l.share(), "examples"))
}

// installAgent puts the agent where all hosts find it.
func (l *Lab) installAgent() error {
	from := l.opts.Agent
	if from == "" {
		root, err := ModuleRoot()
		if err != nil {
			return err
		}
		from = filepath.Join(root, "bin/grapevine")
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	return copyFile(from, filepath.Join(l.share(), "bin/grapevine"))
}

// ModuleRoot is the directory of go.mod above the working directory.
func ModuleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above %s: run it inside the source tree", start)
		}
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return out.Close()
}

// copyTree copies a directory with its owners, modes and links.
func copyTree(from, to string) error {
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", from, err, out)
	}
	return nil
}
