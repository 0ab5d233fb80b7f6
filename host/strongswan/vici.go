package strongswan

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// What follows speaks vici, as strongSwan's src/libcharon/plugins/vici/README.md has it: packets with their length before
// them, of a type, a name where it is a request or an event, and a message.

// section is a message, or a part of one: its order is kept.
type section []field

// field is a value with a name: a string, a []string or a section.
type field struct {
	name  string
	value any
}

// get returns the value of that name, nil: there is none.
func (s section) get(name string) any {
	for _, f := range s {
		if f.name == name {
			return f.value
		}
	}
	return nil
}

func (s section) text(name string) string {
	t, _ := s.get(name).(string)
	return t
}

func (s section) list(name string) []string {
	l, _ := s.get(name).([]string)
	return l
}

// The types of packets.
const (
	cmdRequest = iota
	cmdResponse
	cmdUnknown
	eventRegister
	eventUnregister
	eventConfirm
	eventUnknown
	event
)

// The elements of messages.
const (
	sectionStart = iota + 1
	sectionEnd
	keyValue
	listStart
	listItem
	listEnd
)

// maxPacket is more than a daemon sends.
const maxPacket = 512 << 10

func named(b []byte, element byte, name string) []byte {
	return append(append(b, element, byte(len(name))), name...)
}

func valued(b []byte, value string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(value))), value...)
}

// encode appends a message; names and values are short enough.
func encode(b []byte, s section) []byte {
	for _, f := range s {
		switch v := f.value.(type) {
		case string:
			b = valued(named(b, keyValue, f.name), v)
		case []string:
			b = named(b, listStart, f.name)
			for _, item := range v {
				b = valued(append(b, listItem), item)
			}
			b = append(b, listEnd)
		case section:
			b = append(encode(named(b, sectionStart, f.name), v), sectionEnd)
		}
	}
	return b
}

var errMessage = errors.New("strongSwan sends what is no message of vici")

// decode reads a message, to its end or that of a section, and returns what is left.
func decode(b []byte, within int) (s section, rest []byte, err error) {
	take := func(size int) (text string) {
		if len(b) < size {
			err = errMessage
			return ""
		}
		n := int(b[0])
		if size == 2 {
			n = int(binary.BigEndian.Uint16(b))
		}
		if b = b[size:]; len(b) < n {
			err = errMessage
			return ""
		}
		text, b = string(b[:n]), b[n:]
		return text
	}
	const depth = 16
	for err == nil && len(b) > 0 {
		element := b[0]
		b = b[1:]
		if element == sectionEnd && within > 0 {
			return s, b, nil
		}
		if element != keyValue && element != listStart && element != sectionStart || within > depth {
			return nil, nil, errMessage
		}
		f := field{name: take(1)}
		switch element {
		case keyValue:
			f.value = take(2)
		case sectionStart:
			if err == nil {
				f.value, b, err = decode(b, within+1)
			}
		case listStart:
			items := []string{}
			for err == nil && len(b) > 0 && b[0] == listItem {
				b = b[1:]
				items = append(items, take(2))
			}
			if err == nil && (len(b) == 0 || b[0] != listEnd) {
				err = errMessage
			}
			if err == nil {
				b = b[1:]
			}
			f.value = items
		}
		s = append(s, f)
	}
	if err == nil && within > 0 {
		err = errMessage
	}
	return s, nil, err
}

// line is the connection to a daemon.
type line struct {
	net.Conn
	in *bufio.Reader
}

func (l line) send(kind byte, name string, s section) error {
	b := encode(named(make([]byte, 4), kind, name), s)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	_, err := l.Write(b)
	return err
}

func (l line) receive() (kind byte, s section, err error) {
	var head [4]byte
	if _, err := io.ReadFull(l.in, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > maxPacket {
		return 0, nil, errMessage
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(l.in, b); err != nil {
		return 0, nil, err
	}
	kind, b = b[0], b[1:]
	if kind == event { // which one, who has asked for one knows
		if len(b) == 0 || len(b) <= int(b[0]) {
			return 0, nil, errMessage
		}
		b = b[1+int(b[0]):]
	}
	s, _, err = decode(b, 0)
	return kind, s, err
}

// call sends a request and returns what is answered. Of the events that come before that, if it is asked for some, none is kept:
// strangers can have the daemon tell of as many as they like.
func (l line) call(command, events string, in section, each func(section)) (out section, err error) {
	if err := l.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	expect := func(want byte) error {
		for {
			kind, s, err := l.receive()
			switch {
			case err != nil:
				return err
			case kind == event:
				if each != nil {
					each(s)
				}
			case kind != want:
				return fmt.Errorf("strongSwan does not know it, or answers with a packet of type %d", kind)
			default:
				out = s
				return nil
			}
		}
	}
	ask := func(kind byte, name string, s section, want byte) error {
		err := l.send(kind, name, s)
		if err == nil {
			err = expect(want)
		}
		return err
	}
	if events != "" {
		if err := ask(eventRegister, events, nil, eventConfirm); err != nil {
			return nil, err
		}
	}
	err = ask(cmdRequest, command, in, cmdResponse)
	answer := out
	if err == nil && events != "" {
		err = ask(eventUnregister, events, nil, eventConfirm)
	}
	if err == nil && answer.text("success") == "no" {
		err = refusedError(answer.text("errmsg"))
	}
	return answer, err
}

// refusedError is the daemon's word that it does not do what it was asked for. The line is as good as before.
type refusedError string

func (r refusedError) Error() string { return string(r) }

// Refused reports whether an error is of what was asked for, and not of the daemon or the line to it.
func Refused(err error) bool {
	_, is := errors.AsType[refusedError](err)
	return is
}
