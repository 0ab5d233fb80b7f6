package ports

import (
	"encoding/json"
	"slices"
	"testing"
)

// FuzzPortMap: what Docker hands over of -p is refused, or makes bindings that can be held, and
// is the same when it is handed over once more as it was understood.
func FuzzPortMap(f *testing.F) {
	f.Add([]byte(`[{"Proto":6,"Port":80,"HostIP":"","HostPort":8080,"HostPortEnd":8080}]`))
	f.Add([]byte(`[{"Proto":17,"IP":"","Port":53,"HostIP":"192.0.2.1","HostPort":5300,"HostPortEnd":5310},{"Proto":132,"Port":9,"HostIP":"::"}]`))
	f.Add([]byte(`[{"Proto":6,"Port":80,"HostIP":"::ffff:192.0.2.1","HostPort":1}]`))
	f.Add([]byte(`[{"Proto":1,"Port":0,"HostPort":9,"HostPortEnd":8}]`))
	f.Add([]byte(`{"80/tcp":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var raw any
		if json.Unmarshal(b, &raw) != nil {
			return
		}
		list, err := Parse(map[string]any{OptPortMap: raw})
		if err != nil {
			return
		}
		var again []portBinding
		for _, r := range list {
			if r.Port == 0 || r.First > r.Last || r.First == 0 && r.Last != 0 || r.Host.Is4In6() || r.Host.Zone() != "" {
				t.Errorf("%s: %+v", b, r)
			}
			for n := range r.More + 1 {
				p := portBinding{Proto: r.Proto, Port: r.Port + n, HostPort: r.First, HostPortEnd: r.Last}
				if r.First != 0 {
					p.HostPort, p.HostPortEnd = r.First+n, r.Last+n
				}
				if r.Host.IsValid() {
					p.HostIP = r.Host.String()
				}
				again = append(again, p)
			}
		}
		same, err := Parse(map[string]any{OptPortMap: again})
		if err != nil || !slices.Equal(list, same) {
			t.Errorf("%s: %v, and once more %v, %v", b, list, same, err)
		}
	})
}
