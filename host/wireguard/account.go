package wireguard

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
)

// refusals counts what a device's process refuses. wireguard-go says so of handshakes, where others hear nothing. Data it drops without a word:
// such as come twice, that nobody has encrypted, of a session that is over or of nobody's, with another's address. These are what has
// come to its sockets and was not taken.
type refusals struct {
	named       atomic.Uint64 // that it spoke of, or that are too short or too long for what they say they are
	came, taken atomic.Uint64 // data

	mu    sync.Mutex
	known uint64 // of data, that were refused
}

// hear is what wireguard-go says.
func (r *refusals) hear(format string, _ ...any) {
	switch {
	case said[format]:
		r.named.Add(1)
	case nothing[format]:
		r.taken.Add(1)
	}
}

// sizes are those of messages of a handshake.
var sizes = map[uint32]int{
	device.MessageInitiationType: device.MessageInitiationSize, device.MessageResponseType: device.MessageResponseSize, device.MessageCookieReplyType: device.MessageCookieReplySize,
}

// arrive notes a packet that a socket has had.
func (r *refusals) arrive(packet []byte) {
	if len(packet) < device.MinMessageSize {
		r.named.Add(1)
		return
	}
	switch kind := binary.LittleEndian.Uint32(packet); kind {
	case device.MessageTransportType:
		r.came.Add(1)
	case device.MessageInitiationType, device.MessageResponseType, device.MessageCookieReplyType:
		if len(packet) != sizes[kind] {
			r.named.Add(1)
		} else if kind == device.MessageCookieReplyType {
			r.came.Add(1)
		}
	}
}

// How the account is looked at when it is asked for.
const (
	glance  = 5 * time.Millisecond
	atRest  = 20 // glances in which nothing changes
	glances = 40
	agree   = 3 // glances, with others between them in which packets came
)

// count is how many were refused so far, but for such as came in the last moment. What is under way has come and is not taken yet, so the
// difference is never too low; it is right when nothing is under way. That is known when nothing has changed for a while, or where
// packets come all the time, when it falls back to the same again and again. Where it never does, as while somebody goes on sending what is
// refused, what had come some glances ago and is not taken yet was refused, less what came later and is taken.
func (r *refusals) count() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var came, taken, least, sure uint64
	var past [glances]uint64 // what had come
	still, same := 0, 0
	for i := range glances {
		t := r.taken.Load() // first, or the difference might be too low
		c := r.came.Load()
		open := c - t
		if open <= r.known { // nothing new, and maybe less than was thought of a process that nobody let run
			r.known, sure = open, 0
			break
		}
		if past[i] = c; i >= atRest && past[i-atRest] > t {
			sure = max(sure, past[i-atRest]-t)
		}
		switch {
		case i == 0 || open < least:
			least, same = open, 1
		case open == least && c != came:
			same++
		}
		if still++; c != came || t != taken {
			came, taken, still = c, t, 0
		}
		if still >= atRest || same >= agree {
			r.known = least
			break
		}
		time.Sleep(glance)
	}
	r.known = max(r.known, sure)
	return r.named.Load() + r.known
}

// counting is a bind that notes what comes.
type counting struct {
	conn.Bind
	refused *refusals
}

// Open implements conn.Bind.
func (b counting) Open(port uint16) (receive []conn.ReceiveFunc, at uint16, err error) {
	receive, at, err = b.Bind.Open(port)
	for i, from := range receive {
		receive[i] = func(packets [][]byte, sizes []int, ends []conn.Endpoint) (n int, err error) {
			n, err = from(packets, sizes, ends)
			for j := range n {
				b.refused.arrive(packets[j][:sizes[j]])
			}
			return n, err
		}
	}
	return receive, at, err
}

// counted is a TUN device that notes what it is given.
type counted struct {
	tun.Device
	refused *refusals
}

// Write implements tun.Device.
func (t counted) Write(packets [][]byte, offset int) (int, error) {
	t.refused.taken.Add(uint64(len(packets)))
	return t.Device.Write(packets, offset)
}
