package config

import (
	"flag"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write docs/use/options.md")

// load runs Load with the arguments and environment of one agent, and a file at
// path (text "": there is none).
func load(t *testing.T, args, environ []string, path, text string) (Config, error) {
	t.Helper()
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Load(flags, environ, func(name string) ([]byte, error) {
		if name != path || text == "" {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		return []byte(text), nil
	})
}

// TestState: the directory is found whatever is wrong with other settings, as after a downgrade.
func TestState(t *testing.T) {
	flags := pflag.NewFlagSet("boot-guard", pflag.ContinueOnError)
	file := func(text string) func(string) ([]byte, error) {
		return func(string) ([]byte, error) { return []byte(text), nil }
	}
	for _, c := range []struct{ env, text, want string }{
		{"", "", "/var/lib/grapevine"},
		{"", "GRAPEVINE_OF_LATER=1\nGRAPEVINE_MTU=many\nGRAPEVINE_STATE=/srv/gv\nno line\n", "/srv/gv"},
		{"GRAPEVINE_STATE=/env/gv", "GRAPEVINE_STATE=/srv/gv\n", "/env/gv"},
		{"", "GRAPEVINE_STATE=relative\n", "/var/lib/grapevine"},
	} {
		if got := State(flags, []string{c.env, "GRAPEVINE_OF_LATER=2"}, file(c.text)); got != c.want {
			t.Errorf("State by %q and %q: %s", c.env, c.text, got)
		}
	}
}

func TestDefaults(t *testing.T) {
	got, err := load(t, nil, []string{"PATH=/bin", "GRAPEVINE_JOIN="}, DefaultFile, "")
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		KeyFile: "/var/lib/grapevine/key", MetricsTokenFile: "/var/lib/grapevine/metrics-token", Port: 7947, CIDR4: netip.MustParsePrefix("10.128.0.0/14"), PrefixLen: 22,
		OVS: "auto", Datapath: "auto", FastPath: "auto", Encap: "vxlan", VXLANPort: 4789, Encryption: "networks", IPsec: "off", WireGuardPort: 7948, ClientPort: 7949, Replicate: true, Docker: "unix:///var/run/docker.sock",
		State: "/var/lib/grapevine", Run: "/run/grapevine", PluginSocket: "/run/docker/plugins/grapevine.sock",
		DriverName: "auto", Capture: "headers", Expose: "services", Traffic: "auto", LogLevel: "info",
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
		t.Error(d)
	}
	if d := Default(); d.State != want.State || d.Port != want.Port {
		t.Errorf("the configuration of an agent that is told nothing: %+v", d)
	}
}

func TestPrecedence(t *testing.T) {
	const file = "# a comment\n\nGRAPEVINE_PORT=1001\nGRAPEVINE_NAME = \"from-file\"\nGRAPEVINE_MTU='1500'\n"
	for _, tt := range []struct {
		name, args, env string
		port            uint16
		host            string
	}{
		{"file over default", "", "", 1001, "from-file"},
		{"environment over file", "", "GRAPEVINE_PORT=1002", 1002, "from-file"},
		{"empty environment is none", "", "GRAPEVINE_PORT=", 1001, "from-file"},
		{"flag over environment", "--port=1003 --name=flag", "GRAPEVINE_PORT=1002", 1003, "flag"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := load(t, strings.Fields(tt.args), []string{tt.env}, DefaultFile, file)
			if err != nil {
				t.Fatal(err)
			}
			if got.Port != tt.port || got.Name != tt.host || got.MTU != 1500 {
				t.Errorf("port %d name %q mtu %d, want %d %q 1500", got.Port, got.Name, got.MTU, tt.port, tt.host)
			}
		})
	}
}

// TestShared finds the settings that a join command must pass on.
func TestShared(t *testing.T) {
	got, err := load(t, []string{"--port=7948", "--mtu=1400"}, []string{"GRAPEVINE_VXLAN_PORT=4790", "GRAPEVINE_PREFIXLEN=22"}, DefaultFile, "GRAPEVINE_CIDR4=10.0.0.0/8")
	want := []string{"GRAPEVINE_PORT=7948", "GRAPEVINE_CIDR4=10.0.0.0/8", "GRAPEVINE_VXLAN_PORT=4790"}
	if err != nil || !slices.Equal(got.Shared(), want) {
		t.Errorf("shared settings %q, %v, want %q", got.Shared(), err, want)
	}
}

func TestNamedFile(t *testing.T) {
	for _, how := range []struct{ args, env string }{{"--config=/etc/gv", ""}, {"", "GRAPEVINE_CONFIG=/etc/gv"}} {
		got, err := load(t, strings.Fields(how.args), []string{how.env}, "/etc/gv", "GRAPEVINE_PORT=1234")
		if err != nil || got.Port != 1234 {
			t.Errorf("%+v: port %d, error %v", how, got.Port, err)
		}
		if _, err := load(t, strings.Fields(how.args), []string{how.env}, "/elsewhere", "x"); err == nil {
			t.Errorf("%+v: a named file that is absent is no error", how)
		}
	}
}

func TestJoin(t *testing.T) {
	got, err := load(t, []string{"--port=77", "--join= 10.0.0.1, 10.0.0.2:88,,::ffff:10.0.0.3,[fd00::1]:99"}, nil, DefaultFile, "")
	if err != nil {
		t.Fatal(err)
	}
	want := "[10.0.0.1:77 10.0.0.2:88 10.0.0.3:77 [fd00::1]:99]"
	if s := fmt.Sprint(got.Join); s != want {
		t.Errorf("join %s, want %s", s, want)
	}
}

// TestEncapsulation: each has a port of its own, unless a setting says another, and what would not be encrypted is refused.
func TestEncapsulation(t *testing.T) {
	for _, tt := range []struct {
		env, wrong string
		port       uint16
	}{
		{"", "", 4789},
		{"GRAPEVINE_ENCAP=vxlan", "", 4789},
		{"GRAPEVINE_ENCAP=auto", "", 4789},
		{"GRAPEVINE_ENCAP=geneve", "", 6081},
		{"GRAPEVINE_ENCAP=geneve GRAPEVINE_VXLAN_PORT=4789", "", 4789},
		{"GRAPEVINE_ENCAP=gre", "", 0},
		{"GRAPEVINE_ENCAP=gre GRAPEVINE_VXLAN_PORT=4789", "take vxlan-port away", 0},
		{"GRAPEVINE_ENCAP=gre GRAPEVINE_ENCRYPTION=all", "set encap to vxlan on every host, of which nothing on the way sees any", 0},
		{"GRAPEVINE_ENCAP=geneve GRAPEVINE_PORT=6081", "both want UDP port 6081", 0},
		{"GRAPEVINE_ENCAP=geneve GRAPEVINE_ENCRYPTION=all", "set encap to vxlan on every host, of which nothing on the way sees any", 0},
		{"GRAPEVINE_ENCAP=geneve GRAPEVINE_IPSEC=require", "set ipsec to off or encap to vxlan", 0},
	} {
		got, err := load(t, nil, strings.Fields(tt.env), DefaultFile, "")
		if tt.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%s: error %v, want one with %q", tt.env, err, tt.wrong)
			}
		} else if err != nil || got.VXLANPort != tt.port {
			t.Errorf("%s: port %d, %v, want %d", tt.env, got.VXLANPort, err, tt.port)
		}
	}
}

// TestRefused gives every setting a bad value; each error names what is wrong.
func TestRefused(t *testing.T) {
	for _, tt := range []struct{ env, want string }{
		{"GRAPEVINE_JION=1", "did you mean GRAPEVINE_JOIN?"},
		{"GRAPEVINE_VXLANPORT=1", "did you mean GRAPEVINE_VXLAN_PORT?"},
		{"GRAPEVINE_ZZZZZZZZZZZZZZZ=1", "grapevine agent --help"},
		{"GRAPEVINE_FOO=1", "grapevine agent --help"},
		{"GRAPEVINE_JOIN=host1", `"host1" is not an address of a host`},
		{"GRAPEVINE_JOIN=0.0.0.0", "is not an address of a host"},
		{"GRAPEVINE_JOIN=fe80::1%eth0", "is not an address of a host"},
		{"GRAPEVINE_KEY=c2hvcnQ=", "has 5 bytes instead of 16, 24 or 32"},
		{"GRAPEVINE_KEY=!secret!", "gossip key 1 is not base64"},
		{"GRAPEVINE_KEY_FILE=key", "is not an absolute path"},
		{"GRAPEVINE_ADVERTISE=224.0.0.1", "other hosts can send to"},
		{"GRAPEVINE_BIND=x", "is not an address"},
		{"GRAPEVINE_METRICS=7955", "is not ADDRESS:PORT"},
		{"GRAPEVINE_METRICS=:0", "is not ADDRESS:PORT"},
		{"GRAPEVINE_METRICS_TOKEN_FILE=token", "is not an absolute path"},
		{"GRAPEVINE_PORT=0", "is not a port"},
		{"GRAPEVINE_PORT=65536", "is not a port"},
		{"GRAPEVINE_PORT=4789", "both want UDP port 4789"},
		{"GRAPEVINE_CLIENT_PORT=7947", "clients (client-port) want UDP port 7947"},
		{"GRAPEVINE_NAME=a b", "is not a host name"},
		{"GRAPEVINE_CIDR4=10.128.0.1/14", "host bits zero"},
		{"GRAPEVINE_CIDR4=fd00::/48", "is not an IPv4 prefix"},
		{"GRAPEVINE_CIDR4=10.0.0.0/24", "does not fit into cidr4"},
		{"GRAPEVINE_CIDR6=10.0.0.0/8", "is not an IPv6 prefix"},
		{"GRAPEVINE_PREFIXLEN=31", "is not a number from 8 to 30"},
		{"GRAPEVINE_FORGET_AFTER=72", "is neither 0 (never) nor a time of at least 1m0s"},
		{"GRAPEVINE_FORGET_AFTER=-72h", "is neither 0 (never) nor a time of at least 1m0s"},
		{"GRAPEVINE_HOSTSUBNETLENGTH=10", "leaves no host a subnet of its own"},
		{"GRAPEVINE_OVS=yes", "use one of auto, host, embedded"},
		{"GRAPEVINE_DATAPATH=dpdk", "use one of auto, kernel, userspace"},
		{"GRAPEVINE_VXLAN_PORT=-1", "is not a port"},
		{"GRAPEVINE_ENCAP=stt", "removed it in 3.6"},
		{"GRAPEVINE_ENCAP=mpls", "use vxlan, geneve or gre"},
		{"GRAPEVINE_MTU=1000", "is not an underlay MTU"},
		{"GRAPEVINE_REPLICATE=true", "use on or off"},
		{"GRAPEVINE_DOCKER=tcp://1.2.3.4", "unix:///var/run/docker.sock"},
		{"GRAPEVINE_STATE=.", "is not an absolute path"},
		{"GRAPEVINE_LOG_LEVEL=loud", "use one of debug"},
	} {
		_, err := load(t, nil, []string{tt.env}, DefaultFile, "")
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", tt.env, err, tt.want)
		}
		if key, value, _ := strings.Cut(tt.env, "="); key == "GRAPEVINE_KEY" && err != nil && strings.Contains(err.Error(), value) {
			t.Errorf("the error shows the key: %v", err)
		}
	}
}

func TestRefusedFile(t *testing.T) {
	for text, want := range map[string]string{
		"GRAPEVINE_PROT=1":                   "line 1: GRAPEVINE_PROT is unknown: did you mean GRAPEVINE_PORT?",
		"\nnonsense":                         "line 2 is not KEY=VALUE",
		"GRAPEVINE_MTU=0\nGRAPEVINE_MTU=0":   "line 2: GRAPEVINE_MTU is set a second time",
		"GRAPEVINE_OVS=x\nGRAPEVINE_PORT=-1": "line GRAPEVINE_PORT of the configuration file",
	} {
		if _, err := load(t, nil, nil, DefaultFile, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
}

// TestEdits checks the laws of a metric and the effect of one edit.
func TestEdits(t *testing.T) {
	word := rapid.StringMatching(`[A-Z_]{0,12}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := word.Draw(t, "a"), word.Draw(t, "b"), word.Draw(t, "c")
		if edits(a, b) != edits(b, a) || (edits(a, b) == 0) != (a == b) {
			t.Fatalf("edits(%q, %q) = %d, reversed %d", a, b, edits(a, b), edits(b, a))
		}
		if edits(a, c) > edits(a, b)+edits(b, c) {
			t.Fatal("the triangle inequality fails")
		}
		if a != "" && edits(a, a[1:]) != 1 {
			t.Fatalf("one letter less costs %d", edits(a, a[1:]))
		}
	})
}

// TestDefaultsAreValid finds a default that its own row would refuse.
func TestDefaultsAreValid(t *testing.T) {
	for _, s := range Table {
		if s.Default != "" {
			if err := s.set(new(Config), s.Default); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		} else if !strings.Contains(s.Doc, "Empty: ") {
			t.Errorf("%s has no default and does not say what empty means", s.Name)
		}
	}
}

func TestOptionsPage(t *testing.T) {
	const page = "../docs/use/options.md"
	if *update {
		if err := os.WriteFile(page, []byte(Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Markdown(), string(have)); d != "" {
		t.Errorf("docs/use/options.md is stale: run go test ./config -update\n%s", d)
	}
}

func TestAdvertise(t *testing.T) {
	for text, want := range map[string]Config{
		"192.0.2.1":        {Advertise: netip.MustParseAddrPort("192.0.2.1:0")},
		"192.0.2.1:17947":  {Advertise: netip.MustParseAddrPort("192.0.2.1:17947")},
		"[fd00::1]:17947":  {Advertise: netip.MustParseAddrPort("[fd00::1]:17947")},
		"fd00::1":          {Advertise: netip.MustParseAddrPort("[fd00::1]:0")},
		"eth0":             {AdvertiseInterface: "eth0"},
		"bond0.100":        {AdvertiseInterface: "bond0.100"},
		"192.0.2":          {},
		"0.0.0.0":          {},
		"host.example.org": {},
		"192.0.2.1:x":      {},
	} {
		got, err := load(t, nil, []string{"GRAPEVINE_ADVERTISE=" + text}, DefaultFile, "")
		if got.Advertise != want.Advertise || got.AdvertiseInterface != want.AdvertiseInterface {
			t.Errorf("%s: %v %q", text, got.Advertise, got.AdvertiseInterface)
		}
		if bad := !want.Advertise.IsValid() && want.AdvertiseInterface == ""; bad != (err != nil) {
			t.Errorf("%s: error %v", text, err)
		}
	}
}
