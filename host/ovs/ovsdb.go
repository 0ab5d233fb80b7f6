package ovs

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"time"
)

// dbName is the database of ovs-vswitchd.
const dbName = "Open_vSwitch"

// conn is an OVSDB connection (RFC 7047): JSON-RPC 1.0, values without framing.
// It is used by one goroutine.
type conn struct {
	c   net.Conn
	enc *json.Encoder
	dec *json.Decoder
	id  int
	// passed are the notifications that came while a response was awaited.
	passed []message
}

// message is a request, a response or a notification.
type message struct {
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
}

func (i *Instance) dial(ctx context.Context) (*conn, error) { return dialJSON(ctx, i.DB) }

// dialJSON connects to a socket where JSON-RPC is spoken.
func dialJSON(ctx context.Context, socket string) (*conn, error) {
	c, err := dialUnix(ctx, socket)
	if err != nil {
		return nil, err
	}
	return &conn{c: c, enc: json.NewEncoder(c), dec: json.NewDecoder(c)}, nil
}

func (c *conn) close() { _ = c.c.Close() }

// call sends a request and decodes its result. Notifications that come in between
// are kept in passed.
func (c *conn) call(ctx context.Context, method string, params, result any) error {
	deadline := time.Now().Add(commandTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	_ = c.c.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = c.c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c.id++
	if err := c.enc.Encode(map[string]any{"method": method, "params": params, "id": c.id}); err != nil {
		return err
	}
	want := strconv.Itoa(c.id)
	for {
		m, err := c.receive()
		if err != nil {
			return err
		}
		if m.Method != "" {
			c.passed = append(c.passed, m)
			continue
		}
		if string(m.ID) != want {
			continue
		}
		if len(m.Error) > 0 && string(m.Error) != "null" {
			return fmt.Errorf("%s: %s", method, m.Error)
		}
		return json.Unmarshal(m.Result, result)
	}
}

// receive returns the next message and answers the server's echo requests (RFC
// 7047, 4.1.11), without which it would hang up.
func (c *conn) receive() (message, error) {
	for {
		var m message
		if err := c.dec.Decode(&m); err != nil {
			return message{}, err
		}
		if m.Method != "echo" {
			return m, nil
		}
		reply := map[string]any{"id": m.ID, "result": m.Params, "error": nil}
		if err := c.enc.Encode(reply); err != nil {
			return message{}, err
		}
	}
}

// row is a row of a table; its methods decode the columns.
type row map[string]json.RawMessage

// selects reads tables in one transaction, so that they fit each other. It returns
// the rows of each query.
func (i *Instance) selects(ctx context.Context, queries ...query) ([][]row, error) {
	c, err := i.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return c.selects(ctx, queries...)
}

func (c *conn) selects(ctx context.Context, queries ...query) ([][]row, error) {
	ops := make([]operation, len(queries))
	for n, q := range queries {
		ops[n] = operation{"op": "select", "table": q.table, "where": all, "columns": q.columns}
	}
	results, err := c.transact(ctx, ops...)
	if err != nil {
		return nil, fmt.Errorf("read the database: %w", err)
	}
	out := make([][]row, len(queries))
	for n := range queries {
		out[n] = results[n].Rows
	}
	return out, nil
}

type query struct {
	table   string
	columns []string
}

// text is a string column.
func (r row) text(column string) string {
	var s string
	_ = json.Unmarshal(r[column], &s) // an empty set is no string
	return s
}

// number is an optional integer column; false for the empty set.
func (r row) number(column string) (n int64, ok bool) {
	return n, json.Unmarshal(r[column], &n) == nil
}

// dict is a map column of strings: ["map", [[k, v], ...]].
func (r row) dict(column string) map[string]string {
	var raw [2]json.RawMessage
	var pairs [][2]string
	if json.Unmarshal(r[column], &raw) != nil || json.Unmarshal(raw[1], &pairs) != nil {
		return nil
	}
	m := make(map[string]string, len(pairs))
	for _, p := range pairs {
		m[p[0]] = p[1]
	}
	return m
}

// uuids is a column of references: ["uuid", u] or ["set", [["uuid", u], ...]].
func (r row) uuids(column string) []string {
	var one [2]string
	if json.Unmarshal(r[column], &one) == nil && one[0] == "uuid" {
		return one[1:]
	}
	var raw [2]json.RawMessage
	var set [][2]string
	if json.Unmarshal(r[column], &raw) != nil || json.Unmarshal(raw[1], &set) != nil {
		return nil
	}
	out := make([]string, len(set))
	for i, u := range set {
		out[i] = u[1]
	}
	return out
}
