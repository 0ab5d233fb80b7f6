package config

import "testing"

func TestIPFIX(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "flows.example:4739": "flows.example:4739", "udp://flows.example:4739": "flows.example:4739", "tcp://[2001:db8::7]:4739": "tcp://[2001:db8::7]:4739",
	} {
		var c Config
		if err := setIPFIX(&c, value); err != nil || c.IPFIX != want {
			t.Errorf("%q is %q, %v", value, c.IPFIX, err)
		}
	}
	for _, wrong := range []string{"flows.example", "tcp://flows.example", "tls://flows.example:4739", ":4739", "tcp://:4739", "flows.example:0", "tcp://flows.example:x", "udp://tcp://flows.example:1"} {
		if err := setIPFIX(new(Config), wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}
