package cluster

import (
	"testing"

	"github.com/fxamacker/cbor/v2"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]Rate{
		"64kbit": 64e3, "10mbit": 10e6, "1.5gbit": 1500e6, "100GBIT": 100e9, "70000bit": 70e3,
		"": 0, "10": 0, "mbit": 0, "-1mbit": 0, "63kbit": 0, "101gbit": 0, "NaNmbit": 0, "+Infbit": 0, "10 mbit": 0, "10mb": 0,
	} {
		got, err := ParseRate(text)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
		if again, err := ParseRate(got.String()); want != 0 && (again != got || err != nil) {
			t.Errorf("%q is written %s, which is %d, %v", text, got, again, err)
		}
	}
}

func TestParseDelayAndLoss(t *testing.T) {
	for text, want := range map[string]Delay{
		"50ms": 50_000, "1.5s": 1_500_000, "500us": 500, "10s": 10_000_000, "100us": 100,
		"": 0, "50": 0, "-5ms": 0, "99us": 0, "11s": 0, "soon": 0, "1e9h": 0,
	} {
		got, err := ParseDelay(text)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("delay %q: %d, %v", text, got, err)
		}
		if again, err := ParseDelay(got.String()); want != 0 && (again != got || err != nil) {
			t.Errorf("%q again: %d, %v", got, again, err)
		}
	}
	for text, want := range map[string]Loss{
		"1%": 10_000, "0.5%": 5_000, "100%": 1e6, "0.0001%": 1, "33.3333%": 333_333,
		"": 0, "%": 0, "1": 0, "0%": 0, "-1%": 0, "101%": 0, "NaN%": 0, "Inf%": 0,
	} {
		got, err := ParseLoss(text)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("loss %q: %d, %v", text, got, err)
		}
		if again, err := ParseLoss(got.String()); want != 0 && (again != got || err != nil) {
			t.Errorf("%q again: %d, %v", got, again, err)
		}
	}
}

// An endpoint's limits are fields of its record, by the numbers that older agents know.
func TestLimitsOnTheWire(t *testing.T) {
	raw, err := cbor.Marshal(Endpoint{ID: "a", Limits: Limits{Egress: 1e6, Ingress: 2e6, Delay: 3, Jitter: 4, Loss: 5}})
	if err != nil {
		t.Fatal(err)
	}
	var fields map[int]any
	if err := cbor.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	want := map[int]any{1: "a", 15: uint64(1e6), 16: uint64(2e6), 22: uint64(3), 23: uint64(4), 24: uint64(5)}
	for k, v := range want {
		if fields[k] != v {
			t.Errorf("field %d is %v, want %v", k, fields[k], v)
		}
	}
	own := Limits{Egress: 1e6}
	if got := own.Or(Limits{Egress: 2e6, Loss: 7}); got != (Limits{Egress: 1e6, Loss: 7}) || !got.Lags() || own.Lags() {
		t.Errorf("of its own and its network's: %+v", got)
	}
}
