package cluster

// FailsOver reports whether anything goes to another host as soon as one is silent: connections to services, or to ports of all
// hosts, and who leaves by an address that hosts hold.
func FailsOver(s *Snapshot) bool {
	return some[Service](s) || some[Egress](s) || some[LabelEgress](s)
}

func some[T Body](s *Snapshot) bool {
	for range All[T](s) {
		return true
	}
	return false
}
