package ovs

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// ApplyBundle applies lines of `ovs-ofctl --bundle add-flows` ("add ...",
// "delete_strict ...") as one: all of them or, with an error, none. Lines that begin with "group" are of `ovs-ofctl bundle`.
//
// Most bundles are sent to the switch from here. One with a line that is not encoded
// here, or that the switch refuses, goes through ovs-ofctl: that knows everything and
// says in words what is wrong.
func (b *Bridge) ApplyBundle(ctx context.Context, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	limit := bundleTimeout(len(lines))
	if messages, err := encodeBundle(lines); err == nil {
		if err := b.sendBundle(ctx, limit, messages); err == nil {
			return nil
		}
	}
	args := []string{"--bundle", "add-flows"}
	if slices.ContainsFunc(lines, isGroup) {
		args, lines = []string{"bundle"}, slices.Clone(lines)
		for i, line := range lines {
			if !isGroup(line) {
				lines[i] = "flow " + line
			}
		}
	}
	stdin := []byte(strings.Join(lines, "\n") + "\n")
	if _, err := b.ofctl(ctx, limit, stdin, append(args, "unix:"+b.mgmt(), "-")...); err != nil {
		return fmt.Errorf("change %d flows of %s: %w", len(lines), b.Name, err)
	}
	return nil
}

func isGroup(line string) bool { return strings.HasPrefix(line, "group ") }

// bundleTimeout bounds a bundle of so many flows.
func bundleTimeout(flows int) time.Duration {
	return min(flowsTimeout, commandTimeout+time.Duration(flows)*time.Millisecond)
}

// Control messages of a bundle (OpenFlow 1.4, 7.3.9).
const (
	bundleOpen      = 0
	bundleCommit    = 4
	bundleCommitted = 5

	bundleAtomicOrdered = 3
	bundleID            = 1
)

// encodeBundle is what is said to the switch before the bundle's end: a greeting, the
// bundle, and a barrier, by whose answer all that is refused has been. The message
// number, xid, is of no use here: what is answered is said once.
func encodeBundle(lines []string) ([]byte, error) {
	out := ofMessage(typeHello, nil)
	out = append(out, ofMessage(typeBundleControl, bundleControl(bundleOpen))...)
	for _, line := range lines {
		mod, err := flowMod(line)
		if err != nil {
			return nil, err
		}
		head := binary.BigEndian.AppendUint32(nil, bundleID)
		head = append(head, 0, 0, 0, bundleAtomicOrdered)
		inner := ofMessage(typeFlowMod, mod)
		out = append(out, ofMessage(typeBundleAdd, append(head, inner...))...)
	}
	return append(out, ofMessage(typeBarrierRequest, nil)...), nil
}

func bundleControl(what uint16) []byte {
	b := binary.BigEndian.AppendUint32(nil, bundleID)
	b = binary.BigEndian.AppendUint16(b, what)
	return binary.BigEndian.AppendUint16(b, bundleAtomicOrdered)
}

// ofMessage puts the header of every OpenFlow message before a body.
func ofMessage(kind byte, body []byte) []byte {
	b := []byte{ofVersion, kind}
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(body)))
	b = binary.BigEndian.AppendUint32(b, 1)
	return append(b, body...)
}

// sendBundle says it, and commits if nothing was refused. A bundle that is not
// committed is forgotten with the connection.
func (b *Bridge) sendBundle(ctx context.Context, limit time.Duration, bundle []byte) error {
	c, err := dialUnix(ctx, b.mgmt())
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(limit))
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	answers := bufio.NewReader(c)
	if err := exchange(c, answers, bundle, func(kind byte, _ []byte) bool { return kind == typeBarrierReply }); err != nil {
		return err
	}
	return exchange(c, answers, ofMessage(typeBundleControl, bundleControl(bundleCommit)), func(kind byte, body []byte) bool {
		return kind == typeBundleControl && len(body) >= 6 && binary.BigEndian.Uint16(body[4:]) == bundleCommitted
	})
}

// exchange says something and reads answers until the one that is waited for, or one
// that refuses. The switch may stop reading until its answers are read.
func exchange(c net.Conn, answers *bufio.Reader, say []byte, last func(kind byte, body []byte) bool) error {
	said := make(chan error, 1)
	go func() { _, err := c.Write(say); said <- err }()
	for {
		kind, body, err := readAnswer(answers)
		switch {
		case err != nil:
		case kind == typeError:
			err = fmt.Errorf("the switch refuses: error %x", body[:min(4, len(body))])
		case last(kind, body):
			return <-said
		}
		if err != nil {
			_ = c.SetDeadline(time.Unix(1, 0)) // the rest need not be said
			<-said                             //nolint:errcheck // err says why
			return err
		}
	}
}

func readAnswer(r *bufio.Reader) (kind byte, body []byte, err error) {
	var head [8]byte
	if _, err = io.ReadFull(r, head[:]); err == nil {
		body = make([]byte, max(8, int(binary.BigEndian.Uint16(head[2:])))-8)
		_, err = io.ReadFull(r, body)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("read the switch's answer: %w", err)
	}
	return head[1], body, nil
}
