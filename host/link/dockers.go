package link

import (
	"regexp"
	"sync"
)

var dockers = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(docker0|docker_gwbridge|br-[0-9a-f]{12})$`) })

// IsDockers reports whether a bridge has a name that Docker gives by itself: behind it are containers, and no LAN that other
// hosts share.
func IsDockers(name string) bool { return dockers().MatchString(name) }
