package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// waiting is a packet socket as frames is, whose frames wait in the kernel until somebody asks for them. No frame wakes this
// process: Go's scheduler is not told of the socket. Of hellos several come each second, and what they mean is judged once in one.
type waiting struct {
	fd  int
	mac net.HardwareAddr
	buf []byte
	oob []byte
	// read is when all that had come was read.
	read time.Time
}

const (
	// room is what may wait there, as the kernel counts it: two dozen neighbours' hellos and the others' of two seconds, at 9,000 bytes.
	room = 4 << 20
	// atMost is how many frames are taken at once: many more than there are hellos in a second.
	atMost = 4096
)

func wait(device string) (*waiting, error) {
	fd, dev, err := open(device)
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("have frames at %s say when they came: %w", device, err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room) // without, large ones are lost where there are many hosts
	return &waiting{fd, dev.MAC, make([]byte, ethernet+largest), make([]byte, 128), time.Now()}, nil
}

// all hands on the payloads of the frames that wait, and when they came.
func (w *waiting) all(take func(b []byte, came time.Time)) {
	began := time.Now()
	defer func() { w.read = began }()
	for range atMost {
		n, oobn, _, _, err := unix.Recvmsg(w.fd, w.buf, w.oob, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN): // told once; it may come up again
		case err != nil:
			return
		case n > ethernet:
			take(w.buf[ethernet:n], came(w.oob[:oobn], w.read, time.Now()))
		}
	}
}

// came is when the kernel got a frame, by its control messages: behind after, and not later than now. Its clock is the one that
// people set: it only says how long ago that was, if that can be.
func came(oob []byte, after, now time.Time) time.Time {
	messages, _ := unix.ParseSocketControlMessage(oob)
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= 16 {
			at := time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
			return now.Add(-min(max(now.Round(0).Sub(at), 0), now.Sub(after)))
		}
	}
	return now
}

func (w *waiting) send(to net.HardwareAddr, payload []byte) error {
	_, err := unix.Write(w.fd, frame(w.mac, to, payload))
	return unlessFull(err)
}

// close closes it. Of none it does nothing.
func (w *waiting) close() {
	if w != nil {
		_ = unix.Close(w.fd)
	}
}
