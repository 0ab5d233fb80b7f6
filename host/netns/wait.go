package netns

import (
	"context"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lookFor is how often a sandbox that is to come is looked for. Before Engine 28 it comes after Join, and the
// container's program starts some 50 ms later.
const lookFor = 5 * time.Millisecond

// Wait opens the file once it is a network namespace: Docker makes an empty file first and mounts the namespace on it.
func Wait(ctx context.Context, key string) (*os.File, error) {
	pause := lookFor
	for tries := 0; ; tries++ {
		if tries == 2000 { // ten seconds: a container made and not started
			pause *= 40
		}
		if ns, err := Open(key); ns != nil || err != nil {
			return ns, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Open opens the file if it is a network namespace now; else it returns nil.
func Open(key string) (*os.File, error) {
	var fs unix.Statfs_t
	if unix.Statfs(key, &fs) != nil || fs.Type != unix.NSFS_MAGIC && !strings.HasPrefix(key, "/proc/") {
		return nil, nil
	}
	return os.Open(key)
}
