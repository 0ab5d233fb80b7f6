package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/grapevine-net/grapevine/"

// mayImport says for each room which others it knows. A line here is a decision: what a room
// must not know is in docs/design/architecture.md.
var mayImport = map[string]string{
	"agent": "agent/idle agent/sockets agent/task api api/view bgp/announce clients/edit clients/sandbox cluster config diagnose/doctor diagnose/ping diagnose/probe diagnose/watch " +
		"dns driver driver/exposed driver/limit driver/listed driver/ports driver/problems driver/publish driver/standin edge egress/edit egress/hold former gossip host/capability " +
		"host/docker host/installed host/link host/nat host/ovs host/plugin host/socket host/store ipam leisure membership membership/identity multicast observe/audit " +
		"observe/capture observe/counts observe/ipfix observe/metrics observe/mirror observe/rulecount observe/taps observe/trace observe/traffic overlay overlay/counter " +
		"overlay/gateway overlay/ike overlay/plane overlay/secure overlay/walk policy/answers policy/edit pulse reach/follow realm replica service/edit service/expose " +
		"service/expose/hold service/inside standing trim",
	"cmd/grapevine":          "agent api api/words config encap host/door host/plugin host/store host/wireguard leisure membership/backup observe/drops observe/frames observe/pcapng policy/sign sshkey ui ui/needs agent/idle cleanup overlay/guard",
	"agent/idle":             "agent/sockets api api/words config diagnose/doctor driver/standin host/installed host/store membership membership/identity overlay/gateway",
	"agent/task":             "api cluster diagnose/doctor driver/problems",
	"driver/listed":          "api api/view cluster driver/ports",
	"agent/sockets":          "api config driver/standin host/socket membership/identity",
	"api":                    "",
	"api/view":               "api cluster policy policy/answers policy/k8s policy/learn policy/replay policy/worlds sshkey",
	"api/words":              "",
	"bgp":                    "cluster egress",
	"bgp/announce":           "api bgp bgp/speaker cluster config egress/hold",
	"bgp/speaker":            "bgp config",
	"cleanup":                "api/words clients/sandbox config driver/standin host/docker host/installed host/lan host/link host/nat host/ovs host/store membership membership/backup membership/identity overlay/gateway overlay/guard overlay/ike overlay/plane overlay/secure overlay/tunnel service/expose/hold",
	"clients":                "cluster",
	"clients/edit":           "api clients cluster replica",
	"clients/sandbox":        "api api/words clients cluster host/link host/portreserve host/wireguard overlay/pipeline",
	"cluster":                "encap ring sshkey",
	"config":                 "encap sshkey",
	"diagnose/doctor":        "api api/words config diagnose/probe dns encap host/docker host/link host/nat host/ovs reach",
	"diagnose/paths":         "",
	"diagnose/ping":          "api diagnose/probe encap",
	"diagnose/probe":         "diagnose/paths host/link overlay/pipeline",
	"diagnose/watch":         "api api/words clients cluster config diagnose/doctor diagnose/paths diagnose/probe encap gossip host/link host/nat overlay/gateway pulse",
	"dns":                    "cluster dns/names host/conntrack host/netns host/nft pulse",
	"dns/names":              "cluster",
	"driver":                 "cluster driver/ports encap host/docker host/link host/plugin host/store ipam policy/plain pulse replica service/expose",
	"driver/exposed":         "api cluster config driver/ports host/docker host/store service service/expose service/expose/hold",
	"driver/limit":           "api api/view cluster replica",
	"driver/ports":           "",
	"driver/problems":        "api cluster driver encap host/docker",
	"driver/publish":         "driver/ports host/nat host/portreserve host/proxy",
	"driver/standin":         "driver host/plugin host/socket ipam",
	"edge":                   "api api/words cluster config dns host/resolved overlay/gateway",
	"egress":                 "cluster policy",
	"egress/edit":            "api cluster egress egress/hold replica",
	"egress/hold":            "cluster egress host/lan host/nat replica",
	"encap":                  "",
	"former":                 "api cluster gossip host/store ring",
	"gossip":                 "",
	"gossip/memnet":          "",
	"host/bypass":            "host/ipsec host/link host/nft pulse",
	"host/capability":        "",
	"host/conntrack":         "",
	"host/docker":            "",
	"host/ipsec":             "host/link",
	"host/filter":            "host/nat host/nft",
	"host/door":              "",
	"host/installed":         "config host/docker host/plugin",
	"host/lan":               "host/link",
	"host/link":              "",
	"host/link/linktest":     "",
	"host/nat":               "host/conntrack host/nft pulse",
	"host/netns":             "",
	"host/nft":               "",
	"host/ovs":               "pulse",
	"host/ovs/ovstest":       "host/ovs",
	"host/packets":           "host/link host/netns",
	"host/plugin":            "leisure",
	"host/portreserve":       "",
	"host/proxy":             "pulse",
	"host/resolved":          "",
	"host/socket":            "pulse",
	"host/socket/sockettest": "",
	"host/store":             "",
	"host/store/storetest":   "host/store replica",
	"host/strongswan":        "",
	"host/wireguard":         "host/link host/netns host/wireguard/offload",
	"host/wireguard/offload": "",
	"ipam":                   "cluster host/plugin host/store reach replica ring",
	"leisure":                "pulse",
	"membership":             "api api/view api/words cluster config gossip host/store ipam membership/backup membership/identity pulse replica",
	"membership/backup":      "host/store membership/identity",
	"membership/identity":    "cluster host/store",
	"multicast":              "api cluster host/link host/netns replica",
	"observe/ask":            "gossip",
	"observe/audit":          "api pulse",
	"observe/capture":        "api api/view cluster gossip host/packets observe/frames observe/pcapng",
	"observe/counts":         "api api/view cluster observe/rulecount overlay policy/edit",
	"observe/drops":          "overlay/pipeline",
	"observe/frames":         "encap",
	"observe/ipfix":          "observe/traffic overlay/counter",
	"observe/mirror":         "api api/view cluster host/packets",
	"observe/metrics":        "api host/door observe/drops overlay/pipeline",
	"observe/pcapng":         "",
	"observe/rulecount":      "api cluster observe/ask",
	"observe/taps":           "cluster host/link host/packets observe/capture observe/frames observe/mirror observe/trace",
	"observe/trace":          "api api/view cluster encap gossip host/packets observe/frames observe/trace/lead overlay/walk service service/expose",
	"observe/trace/lead":     "api api/view cluster egress service service/expose",
	"observe/traffic":        "api cluster host/link observe/ask overlay/counter",
	"overlay":                "cluster egress encap host/link host/ovs overlay/gateway overlay/pipeline overlay/walk policy policy/answers policy/worlds pulse service/expose",
	"overlay/counter":        "host/link",
	"overlay/fastpath":       "encap host/bypass host/ipsec host/link overlay/pipeline overlay/walk",
	"overlay/gateway":        "host/link",
	"overlay/guard":          "api cluster egress host/docker host/filter host/link host/nat overlay/gateway overlay/pipeline pulse",
	"overlay/ike":            "api api/words cluster host/strongswan",
	"overlay/pipeline":       "",
	"overlay/plane":          "api api/words bgp cluster config host/bypass host/ipsec host/lan host/link host/nat host/ovs host/portreserve host/proxy host/store overlay overlay/fastpath overlay/gateway overlay/guard overlay/pipeline overlay/reject overlay/secure overlay/tunnel policy pulse replica service/expose",
	"overlay/reject":         "host/link overlay/pipeline",
	"overlay/secure":         "api api/words cluster encap host/link host/portreserve host/wireguard overlay/fastpath",
	"overlay/tunnel":         "encap host/link overlay/pipeline",
	"overlay/tunnel/measure": "encap host/link overlay/tunnel",
	"overlay/walk":           "overlay/pipeline",
	"policy":                 "",
	"policy/answers":         "policy",
	"policy/edit":            "api api/view api/words cluster policy policy/answers policy/firewall policy/k8s policy/learn policy/plain policy/sign policy/worlds replica sshkey",
	"policy/firewall":        "policy policy/plain",
	"policy/k8s":             "policy",
	"policy/learn":           "policy policy/plain",
	"policy/plain":           "policy",
	"policy/replay":          "policy policy/learn",
	"policy/sign":            "api cluster policy policy/k8s policy/worlds sshkey",
	"policy/worlds":          "cluster policy policy/firewall policy/k8s policy/plain",
	"pulse":                  "",
	"reach":                  "cluster host/link",
	"standing":               "cluster gossip replica",
	"trim":                   "",
	"reach/follow":           "api cluster host/docker host/link overlay/gateway overlay/pipeline reach",
	"realm":                  "api cluster replica",
	"replica":                "cluster host/store",
	"replica/replicatest":    "cluster host/store replica",
	"ring":                   "",
	"scripts/layout":         "",
	"service":                "cluster",
	"service/edit":           "api cluster replica service service/expose",
	"service/expose":         "cluster service",
	"service/expose/hold":    "cluster host/conntrack host/nft host/portreserve host/store service service/expose",
	"service/inside":         "cluster host/conntrack host/netns host/nft service",
	"sshkey":                 "",
	"ui":                     "host/door",
	"ui/needs":               "api ui",
}

// onlyIn are libraries of which one room, or a few, make what all others see.
var onlyIn = map[string]string{
	"github.com/hashicorp/memberlist":              "gossip gossip/memnet",
	"github.com/docker/docker/":                    "host/docker",
	"github.com/docker/go-plugins-helpers/network": "driver",
	"github.com/docker/go-plugins-helpers/ipam":    "ipam",
	"github.com/docker/go-plugins-helpers/sdk":     "host/plugin",
	"github.com/coreos/go-iptables":                "host/nat",
	"github.com/digitalocean/go-openvswitch":       "host/ovs",
	"github.com/prometheus/":                       "observe/metrics",
	"github.com/cilium/ebpf":                       "host/link overlay/counter overlay/fastpath overlay/tunnel",
	"github.com/miekg/dns":                         "dns",
	"github.com/osrg/gobgp/":                       "bgp/speaker",
	"github.com/spf13/cobra":                       "cmd/grapevine",
	"rsc.io/qr":                                    "cmd/grapevine",
	"github.com/spf13/pflag":                       "cmd/grapevine config",
	"go.etcd.io/bbolt":                             "host/store",
	"go.yaml.in/yaml":                              "policy/k8s",
}

// pure are the rooms that touch nothing but what they are given.
var pure = []string{"api/view", "api/words", "bgp", "clients", "cluster", "diagnose/paths", "dns/names", "driver/ports", "egress", "encap", "observe/drops", "observe/frames", "observe/pcapng", "observe/trace/lead", "overlay/pipeline", "overlay/walk", "policy", "policy/answers", "policy/firewall", "policy/k8s", "policy/learn", "policy/plain", "policy/replay", "policy/sign", "policy/worlds", "ring", "service", "service/expose", "sshkey"}

// effects are what a pure room does without.
var effects = []string{"os", "os/exec", "syscall", "golang.org/x/sys/unix", "net/http", "math/rand", "math/rand/v2", "context", "log/slog"}

// TestImports: a room knows the rooms that it is meant to know, and no others.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		imports := strings.Fields(line)
		room := strings.TrimPrefix(imports[0], module)
		if room == "tests" || strings.HasPrefix(room, "tests/") {
			continue
		}
		allowed, known := mayImport[room]
		if !known {
			t.Errorf("%s has no line in mayImport", room)
		}
		for _, other := range strings.Fields(allowed) {
			if !slices.Contains(imports, module+other) {
				t.Errorf("%s does not import %s, though mayImport says so", room, other)
			}
		}
		for _, path := range imports[1:] {
			if other, ours := strings.CutPrefix(path, module); ours && !slices.Contains(strings.Fields(allowed), other) {
				t.Errorf("%s imports %s", room, other)
			}
			for library, rooms := range onlyIn {
				if strings.HasPrefix(path+"/", strings.TrimSuffix(library, "/")+"/") && !slices.Contains(strings.Fields(rooms), room) {
					t.Errorf("%s imports %s, which is for %s alone", room, path, rooms)
				}
			}
			if slices.Contains(pure, room) && slices.Contains(effects, path) {
				t.Errorf("%s is pure, and imports %s", room, path)
			}
		}
	}
}

// eachOther are folders that may stand on each other, and why.
var eachOther = map[string]string{
	"api policy": "api/view has a snapshot as bodies of HTTP, policies as well; policy/edit answers people in such bodies. Neither package stands on the other",
}

// TestNoCircles: no folder stands on itself by way of others, though none of its packages does: two folders, or a circle of more.
// Packages that are for tests are left out.
func TestNoCircles(t *testing.T) {
	on := map[string]map[string]string{} // one folder on another one: a package
	for room, others := range mayImport {
		if strings.HasSuffix(room, "test") {
			continue
		}
		for _, other := range strings.Fields(others) {
			from, _, _ := strings.Cut(room, "/")
			to, _, _ := strings.Cut(other, "/")
			if from == to {
				continue
			}
			if on[from] == nil {
				on[from] = map[string]string{}
			}
			on[from][to] = room + " imports " + other
		}
	}
	for pair := range eachOther {
		one, other, _ := strings.Cut(pair, " ")
		if on[one][other] == "" || on[other][one] == "" {
			t.Errorf("%s do not stand on each other any more", pair)
		}
		for _, others := range on { // the two are one folder in what follows
			if why := others[other]; why != "" {
				others[one] = why
			}
		}
		maps.Copy(on[one], on[other])
		delete(on, other)
		delete(on[one], one)
	}
	for folder := range on {
		if circle := back(on, folder, folder, map[string]bool{}); circle != nil {
			t.Errorf("%s stands on itself: %s", folder, strings.Join(circle, ", "))
		}
	}
}

// back is a way from one folder to another, by what imports what; nil: there is none.
func back(on map[string]map[string]string, from, to string, seen map[string]bool) []string {
	seen[from] = true
	for next, why := range on[from] {
		if next == to {
			return []string{why}
		}
		if seen[next] {
			continue
		}
		if rest := back(on, next, to, seen); rest != nil {
			return append([]string{why}, rest...)
		}
	}
	return nil
}

// TestNoTemplates: nothing of the program makes text by a template, which may call any method by its name: the linker
// then keeps all methods of all types, and the program is a sixth larger. Cobra does once it is given a template; net/rpc,
// which comes with msgpack, and msgpack do in what nothing calls (html/template is of net/rpc).
func TestNoTemplates(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	uncalled := []string{"github.com/spf13/cobra", "net/rpc", "html/template", "github.com/hashicorp/go-msgpack/v2/codec"}
	for line := range strings.Lines(string(out)) {
		imports := strings.Fields(line)
		if !slices.Contains(uncalled, imports[0]) && (slices.Contains(imports[1:], "text/template") || slices.Contains(imports[1:], "html/template")) {
			t.Errorf("%s makes text by templates", imports[0])
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range []string{"SetVersion" + "Template(", "SetUsage" + "Template(", "SetHelp" + "Template("} {
			if strings.Contains(string(text), call) {
				t.Errorf("%s gives cobra a template: %s", file, call)
			}
		}
	}
}
