package policy

// Selected are the endpoints that a set selects, and those of which that is not known.
func (w World) Selected(s Set) (certain, possible []*Endpoint) {
	networks := knownNetworks(w.Networks)
	for i := range w.Endpoints {
		e := &w.Endpoints[i]
		switch s.matches(e, networks) {
		case yes:
			certain = append(certain, e)
		case maybe:
			possible = append(possible, e)
		}
	}
	return certain, possible
}
