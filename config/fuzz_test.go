package config

import (
	"bytes"
	"encoding/base64"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// FuzzSettings: whatever the configuration file and the command line have in them, they are refused
// or make a configuration with what an agent needs.
func FuzzSettings(f *testing.F) {
	f.Add("GRAPEVINE_JOIN=10.0.0.1,10.0.0.2:7947\nGRAPEVINE_KEY='AAAAAAAAAAAAAAAAAAAAAA=='\n# so\n\n", "--port=7000")
	f.Add("GRAPEVINE_CIDR4=10.0.0.0/9\nGRAPEVINE_CIDR6=fd00::/48\nGRAPEVINE_FORGET_AFTER=72h\n", "--name=h1 --advertise=eth0 --mtu 1400")
	f.Add("GRAPEVINE_PORT=1\nGRAPEVINE_PORT=2\nnonsense\nGRAPEVINE_BANANA=1", "--banana")
	for _, s := range Table {
		f.Add(s.Env()+"="+s.Default, "--"+s.Name+"=x")
	}
	f.Fuzz(func(t *testing.T, file, line string) {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.SetOutput(io.Discard)
		AddFlags(flags)
		if flags.Parse(strings.Fields(line)) != nil {
			return
		}
		c, err := Load(flags, nil, func(string) ([]byte, error) { return []byte(file), nil })
		if err != nil {
			return
		}
		if c.Port == 0 || c.VXLANPort == 0 || c.Port == c.VXLANPort || !c.CIDR4.IsValid() || c.PrefixLen < c.CIDR4.Bits() || !strings.HasPrefix(c.State, "/") {
			t.Errorf("%q %q: %+v", file, line, c)
		}
		for _, j := range c.Join {
			if !unicast(j.Addr()) || j.Port() == 0 {
				t.Errorf("%q %q: joins %v", file, line, j)
			}
		}
	})
}

// FuzzFile: what is understood of a file is the same once it is written out again.
func FuzzFile(f *testing.F) {
	f.Add("GRAPEVINE_NAME=\"a b\"\n GRAPEVINE_PORT = 7 \r\n#\n")
	f.Add("GRAPEVINE_NAME='\n=\n")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := parseFile(text)
		if err != nil {
			return
		}
		var out strings.Builder
		for k, v := range values {
			out.WriteString(k + "=\"" + v + "\"\n")
		}
		if again, err := parseFile(out.String()); err != nil || !maps.Equal(values, again) {
			t.Errorf("%q is %v, and once more %v, %v", text, values, again, err)
		}
	})
}

// FuzzKeys: a key file has keys of a good size in it, or is refused with an error that shows none.
func FuzzKeys(f *testing.F) {
	f.Add("AAAAAAAAAAAAAAAAAAAAAA==\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	f.Add("AAAA, ,\t\r\n")
	f.Add("AAAAAAAAAAAAAAAAAAAAAB==")
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := ParseKeys(text)
		if err != nil {
			for _, word := range strings.Fields(text) {
				if len(word) > 20 && strings.Contains(err.Error(), word) {
					t.Errorf("the error shows %q", word)
				}
			}
			return
		}
		var out []string
		for _, k := range keys {
			if n := len(k); n != 16 && n != 24 && n != 32 {
				t.Errorf("a key of %d bytes", n)
			}
			out = append(out, base64.StdEncoding.EncodeToString(k))
		}
		if again, err := ParseKeys(strings.Join(out, ",")); err != nil || !slices.EqualFunc(keys, again, bytes.Equal) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
