package cluster

import "testing"

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
