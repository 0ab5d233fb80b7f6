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
