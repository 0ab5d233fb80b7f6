package cluster

import (
	"errors"
	"fmt"
)

// LabelEgress is an Egress of some containers of its networks, by their labels. It is of a kind of its own: an agent that
// knows of none would take an Egress with Labels for one of all containers.
type LabelEgress Egress

// Key names the record of an egress of some containers.
func (e LabelEgress) Key() Key { return Key{KindLabelEgress, e.Name} }

func (LabelEgress) speaker() NodeID { return "" }

// MaxEgressLabels is how many requirements an egress may have.
const MaxEgressLabels = 16

func (e LabelEgress) validate() error {
	err := Egress(e).valid()
	if len(e.Labels) == 0 || len(e.Labels) > MaxEgressLabels {
		err = errors.Join(err, fmt.Errorf("it asks for %d labels, from 1 to %d", len(e.Labels), MaxEgressLabels))
	}
	for _, l := range e.Labels {
		err = errors.Join(err, name("label", l))
	}
	return err
}
