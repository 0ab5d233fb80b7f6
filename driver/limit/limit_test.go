package limit

import (
	"errors"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/cluster"
)

// TestLimitAll: where one of a container's networks cannot be limited as asked, the others are as before, and an error that says
// that nothing is changed is true.
func TestLimitAll(t *testing.T) {
	list := []cluster.Endpoint{{ID: "a", Name: "web", Network: "blue"}, {ID: "b", Name: "web", Network: "red"}, {ID: "c", Name: "web", Network: "green"}}
	to := func(l *cluster.Limits) { l.Egress = 7e6 }
	for _, c := range []struct {
		refuses string // where a change fails
		stuck   string // where none can be changed back
		blue    cluster.Rate
		want    string
	}{
		{"", "", 7e6, ""},
		{"a", "", 1e6, "limit web on network blue: nothing is changed: no"},
		{"c", "", 1e6, "limit web on network green: nothing is changed: no"},
		{"c", "a", 7e6, "limit web on network green: what is changed stays so on network blue: no"},
	} {
		has := map[string]cluster.Limits{"a": {Egress: 1e6}, "b": {Egress: 2e6}, "c": {}}
		err := limitAll(list, to, func(id string, change func(*cluster.Limits)) error {
			l := has[id]
			change(&l)
			if id == c.refuses || id == c.stuck && l.Egress != 7e6 {
				return errors.New("no")
			}
			has[id] = l
			return nil
		})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c, err)
		}
		if has["a"].Egress != c.blue {
			t.Errorf("%v: it is %v", c, has)
		}
	}
}
