package driver

import (
	"net/netip"
	"strings"
)

// prefixList is subnets, for people.
func prefixList(all []netip.Prefix) string {
	var texts []string
	for _, p := range all {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ", ")
}
