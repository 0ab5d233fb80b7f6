package ovs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"testing"
	"time"
)

// FuzzDatabase: whatever answers at the database's socket is an error or rows, and
// whatever answers at the switch's.
func FuzzDatabase(f *testing.F) {
	f.Add([]byte(`{"id":1,"result":[{"rows":[{"name":"gvbr0","external_ids":["map",[["a","b"]]],"ports":["set",[["uuid","u"]]],"ofport":3}]},{"rows":[]}],"error":null}`))
	f.Add([]byte(`{"id":null,"method":"echo","params":[]}{"id":1,"result":[]}`))
	f.Add([]byte(`{"id":1,"result":[{"error":"x","details":"y"}]}`))
	f.Add([]byte{6, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, b []byte) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		go func() {
			_, _ = theirs.Write(b)
			theirs.Close()
		}()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c := &conn{c: ours, enc: json.NewEncoder(ours), dec: json.NewDecoder(ours)}
		tables, _ := c.selects(ctx, query{"Bridge", []string{"name"}}, query{"Port", []string{"name"}})
		for _, rows := range tables {
			for _, r := range rows {
				for column := range r {
					r.text(column)
					r.number(column)
					r.dict(column)
					r.uuids(column)
				}
			}
		}
		_, _, _ = readAnswer(bufio.NewReader(bytes.NewReader(b)))
	})
}

// FuzzWatch: whatever the monitors of flows and of the database print, a word of theirs
// that is not understood says that anything may have changed.
func FuzzWatch(f *testing.F) {
	f.Add(" event=DELETED reason=delete table=20 cookie=0x1 ip,nw_dst=10.1.0.2 actions=goto_table:30")
	f.Add(" event=ADDED table=0 idle_timeout=100 cookie=0")
	f.Add("OFPST_FLOW_MONITOR reply (OF1.4) (xid=0x2):")
	f.Add(`["grapevine",{"Bridge":{"u":{"old":{"ports":["set",[]]},"new":{"ports":["uuid","x"]}}},"Interface":null}]`)
	f.Fuzz(func(t *testing.T, line string) {
		c, some := parseMonitor(line)
		if c.What == Anything && c != (Change{}) || !some && c != (Change{}) || c.Flow.Priority != 0 {
			t.Errorf("%q: %+v %v", line, c, some)
		}
		if what := parseUpdate(json.RawMessage(line)); what != Anything && what != Ports {
			t.Errorf("%q: %v", line, what)
		}
	})
}
