package packets

import "encoding/binary"

// timespec reads the kernel's form of a time: two words of its own size.
func timespec(b []byte) (sec, nsec int64, ok bool) {
	switch len(b) {
	case 16:
		return int64(binary.NativeEndian.Uint64(b)), int64(binary.NativeEndian.Uint64(b[8:])), true
	case 8:
		return int64(binary.NativeEndian.Uint32(b)), int64(binary.NativeEndian.Uint32(b[4:])), true
	}
	return 0, 0, false
}
