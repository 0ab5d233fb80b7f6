package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestParseDomain(t *testing.T) {
	for text, want := range map[string]string{
		"API.github.com.": "api.github.com", "*.pypi.org": "*.pypi.org", "_sip._tcp.example.com": "_sip._tcp.example.com", "1.2.3.example": "1.2.3.example", "xn--bcher-kva.example": "xn--bcher-kva.example", "a.b3": "a.b3", "a.0g": "a.0g",
		"1.2.3": "ends in a number", "*.1.2.3": "ends in a number", "192.0.2.1": "ends in a number", "host.12": "ends in a number", "host.0x1f": "ends in a number", "host.0x": "ends in a number",
		"bücher.example": "begins with xn--", "db": "with a dot in it", "": "with a dot in it", "12": "with a dot in it", "a..b": "with a dot in it", "*": "with a dot in it", "a.*.b": "with a dot in it", "-a.b": "with a dot in it",
		strings.Repeat("a.", 126) + "bc": "with a dot in it", "a b.c": "with a dot in it",
	} {
		d, err := ParseDomain(text)
		if got := string(d); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}

// TestBehind: a name is turned on nothing inside by an address that leads there.
func TestBehind(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1": "[192.0.2.1]", "2001:db8::1": "[2001:db8::1]", "64:ff9b::a80:7": "[64:ff9b::a80:7 10.128.0.7]",
		"64:ff9b:1::a80:7": "[64:ff9b:1::a80:7 10.128.0.7]", "64:ff9b:1::c000:201": "[64:ff9b:1::c000:201 192.0.2.1]",
		"64:ff9b:1:a80:0:700::": "[64:ff9b:1:a80:0:700:: 10.128.0.7 128.0.7.0]",
		"64:ff9b:2::a80:7":      "[64:ff9b:2::a80:7]",
	} {
		if got := fmt.Sprint(Behind(netip.MustParseAddr(text))); got != want {
			t.Errorf("behind %s is %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{"2002:a80:7::1": "of 6to4", "2002:c000:201::": "of 6to4", "fec0::1": "site-local", "feff::1": "site-local", "fe80::1": "link-local", "2003::1": "", "10.0.0.1": "", "192.88.99.1": "of 6to4", "2001:0:a80:7::1": "of Teredo", "2001:db8::1": "", "::ffff:0:a80:7": "no host's", "fd67:7261:7065::1": "a host's to its containers", "fd67:7261:7065:2::1": "a caller's of a published port",
		"169.254.169.254": "link-local", "100.100.100.200": metadata, "168.63.129.16": metadata, "192.0.0.192": metadata, "fd00:ec2::254": metadata, "fd20:ce::254": metadata, "100.100.100.201": "", "fd00:ec2::253": ""} {
		if got := NeverByName(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}
}
