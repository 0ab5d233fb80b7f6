package link

// Splices reports whether the interface has the program of [Splice]; what cannot be looked
// at has.
func Splices(name string) bool { return hasCode(name, spliceName) }

// Consumes reports whether the interface has the program of [Consume]; what cannot be
// looked at has.
func Consumes(name string) bool { return hasCode(name, consumeName) }

func hasCode(name, program string) bool {
	id, err := AttachedTC(name, Ingress, program)
	return err != nil || id != 0
}
