package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/grapevine-net/grapevine/host/filter"
	"github.com/grapevine-net/grapevine/overlay/gateway"
)

// BootFile is the note of which addresses are encrypted networks' containers', in the state directory: for the time after a
// boot until the agent's start, when no rule is there.
const BootFile = "boot-guard"

// noteForBoot keeps the note; the lock is held. A disk that takes nothing is no reason to be without rules now.
func (g *Guard) noteForBoot(cfg filter.Config) {
	if g.cfg.State == "" {
		return
	}
	text := ""
	if cfg.Encrypted != "" {
		for _, p := range cfg.Cluster {
			text += p.String() + "\n"
		}
	}
	if g.boot != nil && *g.boot == text {
		return
	}
	if err := writeBoot(g.cfg.State, text); err != nil {
		g.log.Warn("note for the next boot which addresses are encrypted", "err", err)
		return
	}
	g.boot = &text
}

// writeBoot has the whole text on the disk or the former one, whenever the power is lost.
func writeBoot(dir, text string) error {
	if text == "" {
		return ForgetBoot(dir)
	}
	if had, err := os.ReadFile(filepath.Join(dir, BootFile)); err == nil && string(had) == text {
		return nil
	}
	f, err := os.CreateTemp(dir, "."+BootFile+"-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, BootFile))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// ForgetBoot removes the note: no agent is to come, or nothing is encrypted any more.
func ForgetBoot(dir string) error {
	if err := os.Remove(filepath.Join(dir, BootFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Boot has nothing leave for the containers of the note but by the gateway, until an agent sets its rules. It says what it
// did. A line that is no prefix is an error, after all others are kept.
func Boot(state string) (string, error) {
	file := filepath.Join(state, BootFile)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 {
		return fmt.Sprintf("no note in %s: nothing was encrypted here when the agent last ran", file), nil
	}
	if err != nil {
		return "", fmt.Errorf("read which addresses are encrypted: %w", err)
	}
	list, err := prefixes(string(text))
	var damaged error
	if err != nil {
		damaged = fmt.Errorf("%s is damaged: %w; the agent writes it again when it starts", file, err)
	}
	if len(list) == 0 {
		return "", damaged
	}
	done, err := filter.Boot(gateway.Port, list)
	if done || err != nil { // no agent has made routes of its own
		err = errors.Join(err, gateway.Shut(list))
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("keep what is for containers from leaving in the clear: %w", err)
	case !done:
		return "the rules of an agent are there", nil
	}
	return fmt.Sprintf("what is for %d prefixes of containers stays here until the agent runs", len(list)), damaged
}

// prefixes are those of a text, one a line, and what is wrong with the last line that is none.
func prefixes(text string) (list []netip.Prefix, err error) {
	for line := range strings.Lines(text) {
		p, wrong := netip.ParsePrefix(strings.TrimSpace(line))
		if wrong != nil {
			err = wrong
			continue
		}
		list = append(list, p)
	}
	return list, err
}
