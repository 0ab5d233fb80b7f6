package driver

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "",
		`{"com.docker.network.generic":{"vnid":"16777215","mtu":"9000","encap":"vxlan","name":"blue","prefixlen":"24","hostsubnetlength":"6"}}`: "",
		`{"com.docker.network.generic":{"com.docker.network.driver.mtu":"1400"},"com.docker.network.whatever":[1]}`:                             "",
		`{"com.docker.network.generic":{"banana":"1"}}`:                               "known are com.docker.network.host_ipv4, com.docker.network.host_ipv6, delay, egress, encap, encrypted, hostsubnetlength, ingress, isolate, jitter, loss, mtu, multicast, name, prefixlen, prefixlen6, vnid",
		`{"com.docker.network.generic":{"vnid":"16777216"}}`:                          "between 0 and 16777215",
		`{"com.docker.network.generic":{"com.docker.network.host_ipv6":"192.0.2.1"}}`: "must be an IPv6 address",
		`{"com.docker.network.generic":{"com.docker.network.host_ipv4":"127.0.0.1"}}`: "must be an IPv4 address",
		`{"com.docker.network.generic":{"isolate":"yes"}}`:                            "must be true or false",
		`{"com.docker.network.generic":{"multicast":"on","vnid":"7"}}`:                "",
		`{"com.docker.network.generic":{"multicast":"true"}}`:                         "must be on or off",
		`{"com.docker.network.generic":{"multicast":"on","vnid":"0"}}`:                "carries no multicast",
		`{"com.docker.network.generic":{"vnid":"-1"}}`:                                "between 0 and 16777215",
		`{"com.docker.network.generic":{"vnid":7}}`:                                   "not a string",
		`{"com.docker.network.generic":{"mtu":"9"}}`:                                  "between 576 and 9216",
		`{"com.docker.network.generic":{"encap":"stt"}}`:                              "removed it in 3.6",
		`{"com.docker.network.generic":{"encrypted":"1"}}`:                            "must be true, or have no value",
		`{"com.docker.network.generic":{"encrypted":"false"}}`:                        "leave it out for a network that is not encrypted",
		`{"com.docker.network.generic":{"name":"a/b"}}`:                               "without slashes",
		`{"com.docker.network.generic":["vnid"]}`:                                     "not an object",
		`{"com.docker.network.generic":{"prefixlen":"1e9"}}`:                          "between",
	} {
		var all map[string]any
		check(t, json.Unmarshal([]byte(text), &all))
		_, err := parseOptions(all)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func FuzzOptions(f *testing.F) {
	f.Add([]byte(`{"com.docker.network.generic":{"vnid":"7","name":"x"},"com.docker.network.internal":true}`))
	f.Add([]byte(`{"com.docker.network.generic":{"mtu":"1400"},"com.docker.network.internal":"true"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var all map[string]any
		if json.Unmarshal(b, &all) != nil {
			return
		}
		o, err := parseOptions(all)
		if err == nil && (o.vnid >= 1<<24 || o.mtu < 0 || o.mtu > maxMTU || strings.Contains(o.name, "/")) {
			t.Errorf("%s: %+v", b, o)
		}
	})
}
