package ovs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"
)

// This file writes to the database as ovs-vsctl does, without running it: a process
// costs milliseconds, on a kernel with slow system calls a tenth of a second, and
// every container's start waits for it. Names are those of ovs-vswitchd.conf.db(5)
// and RFC 7047, section 5.2.

// operation is one operation of a transaction.
type operation map[string]any

// outcome is the result of an operation.
type outcome struct {
	Rows    []row  `json:"rows"`
	Count   int    `json:"count"`
	Error   string `json:"error"`
	Details string `json:"details"`
}

// transact does all operations, or none and returns why.
func (c *conn) transact(ctx context.Context, ops ...operation) ([]outcome, error) {
	params := []any{dbName}
	for _, op := range ops {
		params = append(params, op)
	}
	var results []outcome
	if err := c.call(ctx, "transact", params, &results); err != nil {
		return nil, err
	}
	// A transaction that fails as a whole has one result more than operations.
	for n, r := range results {
		if r.Error == "" {
			continue
		}
		what := "commit"
		if n < len(ops) {
			what = fmt.Sprintf("%s %s", ops[n]["op"], ops[n]["table"])
		}
		return nil, fmt.Errorf("%s: %s %s", what, r.Error, r.Details)
	}
	if len(results) < len(ops) {
		return nil, fmt.Errorf("%d results for %d operations", len(results), len(ops))
	}
	return results, nil
}

// configure does the operations and waits until ovs-vswitchd has done what they
// say, at most commandTimeout. Of a device that it cannot use it says so in the
// port's error; that is no error here.
func (c *conn) configure(ctx context.Context, ops ...operation) error {
	_, err := c.configureSeen(ctx, nil, func(content) ([]operation, error) { return ops, nil })
	return err
}

// configureSeen is configure for operations that depend on what tables have, and returns what they
// have afterwards. Not a word more is said to the server than without: while a container starts it
// is busy.
func (c *conn) configureSeen(ctx context.Context, queries []query, plan func(content) ([]operation, error)) (content, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	asked := map[string]any{openVSwitch: map[string]any{"columns": []string{"cur_cfg"}}}
	for _, q := range queries {
		asked[q.table] = map[string]any{"columns": q.columns}
	}
	var begin tables
	if err := c.call(ctx, "monitor", []any{dbName, nil, asked}, &begin); err != nil {
		return nil, err
	}
	seen := content{}
	seen.apply(begin)
	ops, err := plan(seen)
	if err != nil {
		return nil, err
	}
	ops = append(ops,
		operation{"op": "mutate", "table": openVSwitch, "where": all, "mutations": []any{[]any{"next_cfg", "+=", 1}}},
		operation{"op": "select", "table": openVSwitch, "where": all, "columns": []string{"next_cfg"}})
	results, err := c.transact(ctx, ops...)
	if err != nil {
		return nil, err
	}
	rows := results[len(ops)-1].Rows
	if len(rows) != 1 {
		return nil, fmt.Errorf("the database has %d rows in %s", len(rows), openVSwitch)
	}
	want, _ := rows[0].number("next_cfg")
	if err := c.await(ctx, want, seen); err != nil {
		return nil, fmt.Errorf("wait for ovs-vswitchd: %w", err)
	}
	return seen, nil
}

// initialize writes settings into the database, which may be new. ovs-vswitchd need
// not run.
func (i *Instance) initialize(ctx context.Context, settings map[string]string) error {
	c, err := i.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	found, err := c.selects(ctx, query{openVSwitch, []string{"_uuid"}})
	if err != nil {
		return err
	}
	op := insert(openVSwitch, "root", map[string]any{"other_config": mapOf(settings)})
	if len(found[0]) > 0 {
		op = mutate(openVSwitch, all, put("other_config", settings)...)
	}
	_, err = c.transact(ctx, op)
	return err
}

// tables are updates of rows by table and UUID (RFC 7047, 4.1.6).
type tables map[string]map[string]struct {
	New row `json:"new"`
}

// content is what tables have, by table and UUID, as far as it was asked for.
type content map[string]map[string]row

func (c content) apply(u tables) {
	for table, updates := range u {
		if c[table] == nil {
			c[table] = map[string]row{}
		}
		for uuid, update := range updates {
			if update.New == nil {
				delete(c[table], uuid)
			} else {
				c[table][uuid] = update.New
			}
		}
	}
}

// rows are those of a table, with the column _uuid.
func (c content) rows(table string) (rows []row) {
	for uuid, r := range c[table] {
		r = maps.Clone(r)
		r["_uuid"] = fmt.Appendf(nil, `["uuid",%q]`, uuid)
		rows = append(rows, r)
	}
	return rows
}

// await reads updates until ovs-vswitchd has caught up with configuration want.
func (c *conn) await(ctx context.Context, want int64, seen content) error {
	deadline, _ := ctx.Deadline()
	_ = c.c.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = c.c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		for _, m := range c.passed {
			u := m.updates()
			seen.apply(u)
			if u.caughtUp(want) {
				return nil
			}
		}
		m, err := c.receive()
		if err != nil {
			return err
		}
		c.passed = []message{m}
	}
}

// updates are those of a notification, nil if it is another one.
func (m message) updates() tables {
	var params [2]json.RawMessage
	var u tables
	if m.Method != "update" || json.Unmarshal(m.Params, &params) != nil || json.Unmarshal(params[1], &u) != nil {
		return nil
	}
	return u
}

// caughtUp says whether the updates tell of a configuration that is done, want or a later one.
func (u tables) caughtUp(want int64) bool {
	for _, update := range u[openVSwitch] {
		if n, ok := update.New.number("cur_cfg"); ok && n >= want {
			return true
		}
	}
	return false
}

// openVSwitch is the table whose one row all others hang on.
const openVSwitch = "Open_vSwitch"

var all = []any{}

func insert(table, name string, row map[string]any) operation {
	return operation{"op": "insert", "table": table, "uuid-name": name, "row": row}
}

func update(table string, where []any, row map[string]any) operation {
	return operation{"op": "update", "table": table, "where": where, "row": row}
}

func mutate(table string, where []any, mutations ...any) operation {
	return operation{"op": "mutate", "table": table, "where": where, "mutations": mutations}
}

func named(name string) []any { return []any{[]any{"name", "==", name}} }

// inserted refers to a row that the same transaction inserts.
func inserted(name string) []any { return []any{"named-uuid", name} }

func mapOf(m map[string]string) []any {
	pairs := [][2]string{}
	for k, v := range m {
		pairs = append(pairs, [2]string{k, v})
	}
	return []any{"map", pairs}
}

func setOf[T any](list []T) []any {
	if list == nil {
		list = []T{}
	}
	return []any{"set", list}
}
