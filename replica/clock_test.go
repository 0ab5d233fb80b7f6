package replica

import (
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/cluster"
)

// What is deleted stays so on all hosts, whatever the clock of the host that deleted it
// says, and that of those that hear of it, and though a host comes back that has not heard
// of it: none of that makes three days of running pass.
func TestWrongClocks(t *testing.T) {
	year := 365 * 24 * time.Hour
	for _, c := range []struct {
		name           string
		writer, reader time.Time
	}{
		{"right", time.Now(), time.Now()},
		{"its writer's is of 1970", time.Unix(100, 0), time.Now()},
		{"its writer's is ahead", time.Now().Add(50 * year), time.Now()},
		{"its reader's jumps", time.Now(), time.Now().Add(year)},
		{"both", time.Unix(100, 0), time.Now().Add(year)},
	} {
		t.Run(c.name, func(t *testing.T) {
			writer, reader, away := open(t, id(1)), open(t, id(2)), open(t, id(3))
			writer.now, reader.now = func() time.Time { return c.writer }, func() time.Time { return c.reader }
			blue := cluster.Network{Name: "blue"}
			put(t, writer, blue)
			exchange(t, writer, away)
			exchange(t, writer, reader)
			if _, err := writer.Update(func(tx *Tx) error {
				tx.Delete(blue.Key())
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			exchange(t, writer, reader)
			for _, r := range []*Replica{writer, reader} {
				if err := r.Expire(); err != nil {
					t.Fatal(err)
				}
				if !r.Snapshot().Tombstone(blue.Key()) {
					t.Errorf("%s has forgotten the deletion", r.Self())
				}
			}
			exchange(t, away, reader)
			if _, live := cluster.Get[cluster.Network](reader.Snapshot(), "blue"); live {
				t.Error("the network is back")
			}
		})
	}
}
