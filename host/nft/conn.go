package nft

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Conn is a netlink socket of one network namespace. Tables that it made as Owned go
// with it.
type Conn struct {
	mu    sync.Mutex
	fd    int
	close sync.Once
	buf   []byte // of receive
	// most is how much a dump may tell; 0: as much as there is.
	most int
	// polite, if it is not nil, says that a batch first waits for others' (Wait), and is told when it begins to and has done so.
	polite func(waits bool)
}

// Dial opens a Conn in the calling thread's namespace.
func Dial() (*Conn, error) {
	fd, err := open()
	if err != nil {
		return nil, err
	}
	timeout := unix.Timeval{Sec: 5}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	// A batch is one message, and each of its parts is acknowledged.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	return &Conn{fd: fd}, nil
}

// DialInside opens a Conn in the calling thread's namespace, which somebody else may administer, such as a container. What it
// reads there at a time is bounded: ErrMuch says that there is more. And its batches wait (Wait) until they may be done, of which polite is told.
func DialInside(polite func(waits bool)) (*Conn, error) {
	c, err := Dial()
	if err == nil {
		c.most, c.polite = muchInside, polite
	}
	return c, err
}

// muchInside is how much is read of one kind of thing in a namespace that somebody else may administer, bytes: that many have
// some tens of thousands of addresses.
const muchInside = 4 << 20

// ErrMuch says that there is more than is read in a namespace that somebody else may administer.
var ErrMuch = errors.New("there is more of it than the agent reads in a container")

// Wait returns when nobody changes the rules of the calling thread's namespace. A batch that is sent meanwhile keeps all others on
// the host waiting, in whichever namespace: the kernel holds the lock of them all (nfnl_lock) while it waits for that of the namespace
// (nf_tables_valid_genid). A socket that is closed waits for that one alone (nft_rcv_nl_event, Linux 5.12).
func Wait() error {
	fd, err := open()
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// open opens a socket with a number (port ID) of its own. A table is owned by a number: who asks for none gets the process's, if no other
// socket has that; but the end of one that had it before may be told later, having waited for others' rules, and takes the table away.
func open() (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, fmt.Errorf("open a netfilter socket: %w", err)
	}
	for {
		number := rand.Uint32() | 1<<31 // no process has such a one
		switch err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: number}); {
		case err == nil:
			return fd, nil
		case !errors.Is(err, unix.EADDRINUSE):
			return 0, errors.Join(fmt.Errorf("give a netfilter socket its number: %w", err), unix.Close(fd))
		}
	}
}

// Close closes the socket; tables that it owns go.
func (c *Conn) Close() { c.close.Do(func() { _ = unix.Close(c.fd) }) }

// Do does all of the messages, or nothing.
func (c *Conn) Do(messages [][]byte) error { return c.do(mark(unix.NFNL_MSG_BATCH_BEGIN), messages) }

// DoAt is Do if the rules of this namespace are still of that generation; else the error is ERESTART.
func (c *Conn) DoAt(generation uint32, messages [][]byte) error {
	body := []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}
	body = append(body, nl.NewRtAttr(unix.NFNL_BATCH_GENID, be32(generation)).Serialize()...)
	return c.do(message(unix.NFNL_MSG_BATCH_BEGIN, 0, body), messages)
}

func (c *Conn) do(batch []byte, messages [][]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	length := unix.NLMSG_HDRLEN + 4 // the end's
	for _, m := range messages {
		length += len(m)
	}
	batch = slices.Grow(batch, length)
	last := len(batch)
	for _, m := range messages {
		last = len(batch)
		batch = append(batch, m...)
		acknowledge(batch[last:], false)
	}
	if len(messages) > 0 {
		acknowledge(batch[last:], true)
	}
	batch = append(batch, mark(unix.NFNL_MSG_BATCH_END)...)
	if c.polite != nil {
		c.polite(true)
		err := Wait()
		if c.polite(false); err != nil {
			return err
		}
	}
	if err := unix.Sendto(c.fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil || len(messages) == 0 {
		return err
	}
	return c.acknowledged()
}

// acknowledge says in a message whether the kernel is to acknowledge it. An error it tells in any case.
func acknowledge(m []byte, is bool) {
	flags := binary.NativeEndian.Uint16(m[6:]) &^ unix.NLM_F_ACK
	if is {
		flags |= unix.NLM_F_ACK
	}
	binary.NativeEndian.PutUint16(m[6:], flags)
}

// acknowledged reads the acknowledgement of a batch's last message: the kernel tells of its messages in their order,
// after the last one. A batch that failed has an error for each message that did: the first one counts, and what is left
// is read away.
func (c *Conn) acknowledged() error {
	for {
		messages, err := c.receive()
		if err != nil {
			return err
		}
		if len(messages) == 0 {
			continue
		}
		if code := int32(binary.NativeEndian.Uint32(messages[0][unix.NLMSG_HDRLEN:])); code != 0 {
			c.drain()
			return unix.Errno(-code)
		}
		return nil
	}
}

func (c *Conn) drain() {
	var head [unix.NLMSG_HDRLEN]byte
	for {
		if _, _, err := unix.Recvfrom(c.fd, head[:], unix.MSG_DONTWAIT); err != nil {
			return
		}
	}
}

// receive returns the messages of one datagram, which are there until the next one. c.mu is held.
func (c *Conn) receive() ([][]byte, error) {
	if c.buf == nil {
		c.buf = make([]byte, 1<<16)
	}
	n, _, err := unix.Recvfrom(c.fd, c.buf, 0)
	if err != nil {
		return nil, err
	}
	return split(c.buf[:n]), nil
}

// split cuts a datagram into its messages, of which each has room for a number behind
// its header.
func split(b []byte) (messages [][]byte) {
	for len(b) >= unix.NLMSG_HDRLEN+4 {
		length := int(binary.NativeEndian.Uint32(b))
		if length < unix.NLMSG_HDRLEN+4 || length > len(b) {
			break
		}
		messages = append(messages, b[:length])
		b = b[min((length+3)&^3, len(b)):]
	}
	return messages
}

// Empty reports whether a table that is there has nothing in it but base chains that accept.
func Empty(t Table) (bool, error) {
	empty := true
	for _, what := range []struct {
		get  uint16
		mine func(attrs []byte) bool // is of this kind nothing
	}{
		{unix.NFT_MSG_GETCHAIN, func(attrs []byte) bool {
			policy := attribute(attrs, unix.NFTA_CHAIN_POLICY)
			return attribute(attrs, unix.NFTA_CHAIN_HOOK) != nil && len(policy) == 4 && binary.BigEndian.Uint32(policy) == 1 // NF_ACCEPT
		}},
		{unix.NFT_MSG_GETRULE, nil}, {unix.NFT_MSG_GETSET, nil}, {unix.NFT_MSG_GETOBJ, nil}, {unix.NFT_MSG_GETFLOWTABLE, nil},
	} {
		req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|int(what.get), unix.NLM_F_DUMP)
		req.AddData(&nl.Nfgenmsg{NfgenFamily: t.Family, Version: nl.NFNETLINK_V0})
		replies, err := req.Execute(unix.NETLINK_NETFILTER, 0)
		if err != nil {
			return false, err
		}
		const tableName = 1 // NFTA_CHAIN_TABLE, NFTA_RULE_TABLE, ...: of each kind the first attribute
		for _, r := range replies {
			attrs := r[min(len(r), nl.SizeofNfgenmsg):]
			if string(bytes.TrimRight(attribute(attrs, tableName), "\x00")) == t.Name {
				empty = empty && what.mine != nil && what.mine(attrs)
			}
		}
	}
	return empty, nil
}

// Handles are the numbers of the rules that a table has, in order: within a table, each
// rule that is added or replaced gets another one. A table that is not there has none.
func (c *Conn) Handles(t Table) (handles []uint64, err error) {
	rules, err := c.rules(t, "")
	for _, attrs := range rules {
		if h := attribute(attrs, unix.NFTA_RULE_HANDLE); len(h) == 8 {
			handles = append(handles, binary.BigEndian.Uint64(h))
		}
	}
	return handles, err
}

// Count is what the counter of a rule has.
type Count struct {
	Chain, Comment string
	Packets, Bytes uint64
}

// Counts are those of a table's rules that have a counter, in order, or of one chain's of it ("": all). A table that is not there has none.
func (c *Conn) Counts(t Table, chain string) (list []Count, err error) {
	rules, err := c.rules(t, chain)
	for _, attrs := range rules {
		counter := counterOf(attribute(attrs, unix.NFTA_RULE_EXPRESSIONS))
		bytes, packets := attribute(counter, unix.NFTA_COUNTER_BYTES), attribute(counter, unix.NFTA_COUNTER_PACKETS)
		if len(bytes) != 8 || len(packets) != 8 {
			continue
		}
		list = append(list, Count{
			Chain: string(trimmed(attribute(attrs, unix.NFTA_RULE_CHAIN))), Comment: commentOf(attribute(attrs, unix.NFTA_RULE_USERDATA)),
			Packets: binary.BigEndian.Uint64(packets), Bytes: binary.BigEndian.Uint64(bytes),
		})
	}
	return list, err
}

func trimmed(b []byte) []byte { return bytes.TrimRight(b, "\x00") }

// counterOf is what a counter among a rule's expressions says; nil: there is none.
func counterOf(exprs []byte) []byte {
	for e := range attributes(exprs) {
		if string(trimmed(attribute(e, unix.NFTA_EXPR_NAME))) == "counter" {
			return attribute(e, unix.NFTA_EXPR_DATA)
		}
	}
	return nil
}

// attributes are the values of a list of attributes.
func attributes(list []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(list) >= 4 {
			length := int(binary.NativeEndian.Uint16(list))
			if length < 4 || length > len(list) || !yield(list[4:length]) {
				return
			}
			list = list[min((length+3)&^3, len(list)):]
		}
	}
}

// commentOf is the comment in a rule's data for programs: type 0, a length, text.
func commentOf(data []byte) string {
	if len(data) < 2 || data[0] != 0 || int(data[1]) > len(data)-2 {
		return ""
	}
	return string(trimmed(data[2 : 2+int(data[1])]))
}

// rules are the attributes of a table's rules, in order.
func (c *Conn) rules(t Table, chain string) (list [][]byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body := []byte{t.Family, unix.NFNETLINK_V0, 0, 0}
	body = append(body, text(unix.NFTA_RULE_TABLE, t.Name).Serialize()...)
	if chain != "" {
		body = append(body, text(unix.NFTA_RULE_CHAIN, chain).Serialize()...)
	}
	req := message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, body)
	for range 5 {
		list, err = c.dump(req)
		if !errors.Is(err, errChanged) {
			break
		}
	}
	return list, err
}

// groupNFTables is NFNLGRP_NFTABLES.
const groupNFTables = 7

var errChanged = errors.New("the rules changed while they were read")

// dump returns the attributes of what the kernel has of it; with errChanged, of what it told. c.mu is held.
func (c *Conn) dump(req []byte) (rules [][]byte, err error) {
	if err := unix.Sendto(c.fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	changed, read := false, 0
	for {
		messages, err := c.receive()
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			read += len(m)
		}
		if c.most > 0 && read > c.most {
			return nil, errors.Join(ErrMuch, c.anew())
		}
		for _, m := range messages {
			changed = changed || binary.NativeEndian.Uint16(m[6:])&unix.NLM_F_DUMP_INTR != 0
			switch kind := binary.NativeEndian.Uint16(m[4:]); kind {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				if code := int32(binary.NativeEndian.Uint32(m[unix.NLMSG_HDRLEN:])); code != 0 && unix.Errno(-code) != unix.ENOENT {
					return nil, unix.Errno(-code)
				}
				if changed {
					return rules, errChanged
				}
				return rules, nil
			}
			rules = append(rules, bytes.Clone(m[unix.NLMSG_HDRLEN+4:]))
		}
	}
}

// anew puts another socket in the place of one that would go on telling. c.mu is held.
func (c *Conn) anew() error {
	other, err := Dial()
	if err != nil {
		return err
	}
	old := c.fd
	c.fd = other.fd
	return unix.Close(old)
}

// attribute returns the value of a netlink attribute, nil if it is not there.
func attribute(attrs []byte, kind int) []byte {
	for len(attrs) >= 4 {
		length := int(binary.NativeEndian.Uint16(attrs))
		have := int(binary.NativeEndian.Uint16(attrs[2:])) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		if length < 4 || length > len(attrs) {
			return nil
		}
		if have == kind {
			return attrs[4:length]
		}
		attrs = attrs[min((length+3)&^3, len(attrs)):]
	}
	return nil
}

// Watch is a socket that hears of every change of the namespace's nftables.
type Watch struct {
	file *os.File
	raw  syscall.RawConn
}

// NewWatch opens a Watch in the calling thread's namespace.
func NewWatch() (*Watch, error) {
	fd, err := open()
	if err != nil {
		return nil, err
	}
	// It is bound to its number: the kernel refuses to bind it again, to the group.
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, groupNFTables), unix.SetNonblock(fd, true))
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("watch the changes of nftables: %w", err)
	}
	w := &Watch{file: os.NewFile(uintptr(fd), "nftables")}
	w.raw, err = w.file.SyscallConn()
	return w, err
}

// Wait returns when something has changed, when ctx is done, or when most is over.
func (w *Watch) Wait(ctx context.Context, most time.Duration) error {
	_ = w.file.SetReadDeadline(time.Now().Add(most))
	defer context.AfterFunc(ctx, func() { _ = w.file.SetReadDeadline(time.Unix(1, 0)) })()
	var failed error
	err := w.raw.Read(func(fd uintptr) bool {
		var head [unix.NLMSG_HDRLEN]byte // what has changed does not matter
		for some := false; ; some = true {
			switch _, _, err := unix.Recvfrom(int(fd), head[:], unix.MSG_DONTWAIT); err {
			case nil, unix.EINTR, unix.ENOBUFS: // ENOBUFS: there were too many changes for the socket
			case unix.EAGAIN:
				return some // all of it at once
			default:
				failed = err
				return true
			}
		}
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return errors.Join(failed, err)
}

// Close ends it. Nobody may wait any more.
func (w *Watch) Close() { _ = w.file.Close() }
