package plugin

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"sync"
)

// socketDir is where a managed plugin's own socket has to be, and where Docker
// mounts a directory for it.
const socketDir = "/run/docker/plugins"

var idForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{64}$`) })

// ManagedID is the ID by which Docker knows this process as a managed plugin; ""
// if it is none.
func ManagedID() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find out whether this is a managed plugin: %w", err)
	}
	return managedID(string(mounts)), nil
}

// managedID finds the mount of a managed plugin's socket directory, whose source
// is named after the plugin (moby plugin/v2), in the text of mountinfo (proc(5)):
// "ID parent device root mountpoint ...".
func managedID(mountinfo string) string {
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		if len(f) < 5 || f[4] != socketDir {
			continue
		}
		if id := path.Base(f[3]); idForm().MatchString(id) {
			return id
		}
	}
	return ""
}
