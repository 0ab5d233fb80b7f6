package ring

// Owner names a host: 16 lower-case hexadecimal digits.
type Owner string

// Valid reports whether o has the form of a host's name.
func (o Owner) Valid() bool {
	if len(o) != 16 {
		return false
	}
	for _, c := range []byte(o) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
