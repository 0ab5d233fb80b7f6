package guard

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
)

// note is a file of the run directory, which says something until this host's next boot. It is read
// once, and put back when somebody removes it.
type note struct {
	file string

	mu   sync.Mutex
	read bool
	text string // "": there is none
}

func (n *note) get() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known()
}

// known is the text; the lock is held.
func (n *note) known() string {
	if !n.read {
		text, _ := os.ReadFile(n.file) // none: nothing
		n.text, n.read = string(text), true
	}
	return n.text
}

func (n *note) set(text string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text, n.read = text, true
	return n.write()
}

func (n *note) write() error {
	if n.text == "" {
		if err := os.Remove(n.file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(n.file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(n.file, []byte(n.text), 0o600)
}

// keep puts the file back if it is gone.
func (n *note) keep() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known() == "" {
		return nil
	}
	if _, err := os.Lstat(n.file); errors.Is(err, os.ErrNotExist) {
		return n.write()
	}
	return nil
}
