package driver

import "slices"

// Namesake is a network of the cluster that is not on this host, since its Docker has one of that name with another
// driver: containers that are started on that one reach nobody of the cluster's.
type Namesake struct{ Network, Driver string }

// Namesakes is Driver.Namesakes.
func (d *mirror) Namesakes() []Namesake {
	if list := d.namesakes.Load(); list != nil {
		return slices.Clone(*list)
	}
	return nil
}
