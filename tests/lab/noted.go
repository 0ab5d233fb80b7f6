package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Note adds the lab to those that file names, for RemoveNoted: a lab that is kept is whose
// who has its name.
func (l *Lab) Note(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("note the lab's name: %w", err)
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("note the lab's name: %w", err)
	}
	_, err = fmt.Fprintln(f, l.id)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("note the lab's name: %w", err)
	}
	return nil
}

// RemoveNoted removes the labs that file names, and it, and returns their names. No file: there
// are none. Of those that are gone already, or belong to a running program by now, nothing is done.
func RemoveNoted(file string) (removed []string, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which labs were kept: %w", err)
	}
	for _, id := range strings.Fields(string(text)) {
		if ownerState(filepath.Join(base, filepath.Base(id))) == keptMark {
			removed = append(removed, id)
		}
	}
	if err := Remove(removed...); err != nil {
		return removed, err
	}
	return removed, os.Remove(file)
}
