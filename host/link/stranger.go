package link

import (
	"errors"
	"fmt"
	"slices"
)

// StrangerError says that somebody else's interface has the name of one of ours.
type StrangerError struct{ Name, Kind string }

func (e *StrangerError) Error() string {
	return fmt.Sprintf("%s is a %s of somebody else's: remove or rename it", e.Name, e.Kind)
}

// switched are the kinds of what Open vSwitch makes: taps, as the kernel or the library calls them, and its module's ports.
var switched = []string{"tuntap", "tun", "openvswitch"}

// Stranger is a StrangerError if the interface called name is none that Open vSwitch makes. That there is none is no error.
func Stranger(name string) error {
	l, err := fewOf(0, name)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err == nil && !slices.Contains(switched, l.kind()) {
		return &StrangerError{Name: name, Kind: l.kind()}
	}
	return err
}
