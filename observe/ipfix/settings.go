package ipfix

// Mode is whether connections are counted, by the settings: for a collector they are, whatever would have them counted else,
// unless somebody says that they are not.
func Mode(collector, mode string) string {
	if collector != "" && mode == "auto" {
		return "on"
	}
	return mode
}

// Notes are for status: a collector that is told nothing.
func Notes(collector, mode string) (notes []string) {
	if collector != "" && mode == "off" {
		notes = append(notes, "GRAPEVINE_IPFIX names the collector "+collector+", which is told nothing: with GRAPEVINE_TRAFFIC=off nothing is counted")
	}
	return notes
}
