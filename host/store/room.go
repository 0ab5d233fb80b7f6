package store

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// spare is what an agent wants to be free on its disk, bytes: what a host writes at once that has
// been away for long, some times over.
const spare = 4 << 20

// A RoomError says that a disk takes nothing more, or soon will not.
type RoomError struct {
	Dir    string
	Nearly bool // it still takes something
	what   string
}

func (e *RoomError) Error() string { return fmt.Sprintf("the disk under %s %s", e.Dir, e.what) }

// Room is a RoomError if the file system of a directory has no room, or is read-only; it writes
// nothing. It may wait for a disk that hangs.
func Room(dir string) error {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	for errors.Is(err, unix.EINTR) {
		err = unix.Statfs(dir, &st)
	}
	if err != nil {
		return &RoomError{Dir: dir, what: "does not say how much room it has: " + err.Error()}
	}
	if what, nearly := tight(st); what != "" {
		return &RoomError{dir, nearly, what}
	}
	return nil
}

// tight says what is the matter with a file system, "" if nothing is. Root, as which the agent
// runs, may use what is reserved (Bavail has it not).
func tight(st unix.Statfs_t) (what string, nearly bool) {
	free := st.Bfree * uint64(max(st.Bsize, 0))
	switch {
	case st.Flags&unix.ST_RDONLY != 0:
		return "is read-only: mount it writable", false
	case free < uint64(max(st.Bsize, 0))*4: // a write takes a page and all pages above it
		return "is full: make room on it", false
	case st.Files > 0 && st.Ffree == 0:
		return "takes no more files, it has no inode left (df -i): remove some", false
	case free < spare:
		return fmt.Sprintf("is nearly full, %d KiB are free: make room on it", free>>10), true
	}
	return "", false
}
