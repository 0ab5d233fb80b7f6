package driver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/grapevine-net/grapevine/cluster"
)

// driverOpts are all options of a container's attachment (--network name=N,driver-opt=...).
var driverOpts = append([]string{optAddresses}, cluster.LimitOptions()...)

// checkDriverOpts refuses options that are not known. Docker passes the user's on beside its own,
// which have a dot in their names: what has none is the user's.
func checkDriverOpts(options map[string]any) error {
	for key := range options {
		if !strings.Contains(key, ".") && !slices.Contains(driverOpts, key) {
			return fmt.Errorf("driver-opt %.60q of a container is unknown; known are %s", key, strings.Join(driverOpts, ", "))
		}
	}
	return nil
}
