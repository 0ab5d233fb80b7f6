package config

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestBGP(t *testing.T) {
	var c Config
	if err := setBGP(&c, "192.0.2.254,as=64512,local-as=4200000001; [2001:db8::1]:1179,as=1,local-as=1,password-file=/etc/bgp,hold=30s,restart=0s,ttl-security;"); err != nil {
		t.Fatal(err)
	}
	want := []Router{
		{Addr: netip.MustParseAddrPort("192.0.2.254:179"), AS: 64512, LocalAS: 4200000001, Hold: 9 * time.Second, Restart: time.Minute},
		{Addr: netip.MustParseAddrPort("[2001:db8::1]:1179"), AS: 1, LocalAS: 1, PasswordFile: "/etc/bgp", Hold: 30 * time.Second, Near: true},
	}
	if len(c.BGP) != 2 || c.BGP[0] != want[0] || c.BGP[1] != want[1] || c.BGP[0].String() != "192.0.2.254" || c.BGP[1].String() != "[2001:db8::1]:1179" {
		t.Errorf("read %v, want %v", c.BGP, want)
	}
	for text, why := range map[string]string{
		"router,as=1,local-as=2":                                      "begin with its address",
		"fe80::1%eth0,as=1,local-as=2":                                "begin with its address",
		"192.0.2.254":                                                 "say its AS number",
		"192.0.2.254,as=0,local-as=1":                                 "as=0 is not a number",
		"192.0.2.254,as=1,local-as=1,hold=1s":                         "hold=1s is not a time in whole seconds from 3s",
		"192.0.2.254,as=1,local-as=1,restart=2h":                      "restart=2h is not a time",
		"192.0.2.254,as=1,local-as=1,password=x":                      "use as, local-as, password-file",
		"192.0.2.254,as=1,local-as=1,password-file=":                  "not an absolute path",
		"192.0.2.254,as=1,local-as=1;192.0.2.254:179,as=2,local-as=1": "there twice",
	} {
		if err := setBGP(&c, text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %s", text, err, why)
		}
	}
	if err := setBGPAddresses(&c, "203.0.113.80, 127.0.0.1"); err == nil || !strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("an address that no router leads to: %v", err)
	}
	for _, env := range []string{"GRAPEVINE_BGP_NETWORKS=blue", "GRAPEVINE_BGP_ADDRESSES=203.0.113.80"} {
		if _, err := load(t, nil, []string{env}, DefaultFile, ""); err == nil || !strings.Contains(err.Error(), "needs a router to tell") {
			t.Errorf("%s: %v", env, err)
		}
	}
}
