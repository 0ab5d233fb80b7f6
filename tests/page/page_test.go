package page

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/ui"
	"github.com/grapevine-net/grapevine/ui/needs"
)

// hostile is a name that would be markup, if it were not text.
const hostile = `<img src=x onerror=alert(0)>`

// serve serves the page with the answers, and is the address to open.
func serve(t *testing.T, answers map[string]json.RawMessage) string {
	t.Helper()
	return serveAsks(t, answers, nil)
}

// serveAsks is serve with some answers that are made when they are asked for.
func serveAsks(t *testing.T, answers map[string]json.RawMessage, made map[string]ui.Ask) string {
	t.Helper()
	asks := map[string]ui.Ask{}
	for name := range answers {
		asks[name] = func(context.Context, url.Values) (any, error) { return answers[name], nil }
	}
	maps.Copy(asks, lists(answers, made["endpoints"]).Asks())
	traffic := sync.OnceValues(func() (all api.Traffic, err error) {
		err = json.Unmarshal(answers["traffic"], &all)
		return all, err
	})
	asks["traffic"] = func(_ context.Context, q url.Values) (any, error) {
		all, err := traffic()
		return needs.TrafficOf(all, q.Get("only") == "unanswered"), err
	}
	maps.Copy(asks, made)
	delete(asks, "endpoints") // nobody is sent all of them
	s := ui.New(asks)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	return fmt.Sprintf("http://%s/#%s", l.Addr(), s.Token())
}

const root = "../.." // the working copy's

// theBrowser is one for all tests: most of its time is its start.
var theBrowser = sync.OnceValues(func() (*Browser, error) { return Start(context.Background(), root) })

func TestMain(m *testing.M) {
	code := m.Run()
	if Missing(root) == "" {
		if b, err := theBrowser(); err == nil {
			_ = b.Close()
		}
	}
	os.Exit(code)
}

// browser is a tab of its own.
func browser(t *testing.T) *Tab {
	t.Helper()
	if missing := Missing(root); missing != "" {
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	b, err := theBrowser()
	must(t, err)
	tab, err := b.Tab()
	must(t, err)
	return tab
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// picture leaves what the tab shows in $PICTURES, for people to look at.
func picture(t *testing.T, b *Tab, name string) {
	t.Helper()
	dir := os.Getenv("PICTURES")
	if dir == "" {
		return
	}
	png, err := b.Picture()
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
}

// TestScreens: each screen of a recorded cluster shows what it is for, in light and dark, on a desk and a phone, and the
// browser has nothing to complain about, and neither has axe-core.
func TestScreens(t *testing.T) {
	answers := recorded(t, "cluster.json")
	var endpoints []api.Endpoint
	must(t, json.Unmarshal(answers["endpoints"], &endpoints))
	app := endpoints[0]
	for _, e := range endpoints {
		if e.Name == "app" {
			app = e
		}
	}
	screens := []struct{ name, hash, says string }{
		{"overview", "#/", "Not well: 1 problem"},
		{"containers", "#/containers", "db"},
		{"found", "#/containers?find=blue", "with blue"},
		{"container", "#/container/" + app.Container, "answers to\napp, api"},
		{"networks", "#/networks", "VNID"},
		{"network", "#/network/blue", "gateway"},
		{"hosts", "#/hosts", "host2"},
		{"addresses", "#/addresses", "10.128"},
		{"policies", "#/policies", "NetworkPolicy"},
		{"traffic", "#/traffic?all=true", "db:5432/tcp"},
		{"traffic without an answer", "#/traffic?all=true&only=unanswered", "1 connection without an answer"},
		{"trace", "#/trace?from=app&to=db%3A5432", "policies let it enter"},
		{"doctor", "#/doctor", "What was looked at"},
		{"services", "#/services", "2 of 3 replicas"},
		{"service", "#/service/blue%2Fweb", "its healthcheck says unhealthy"},
		{"in and out", "#/edges", "from 203.0.113.9:41002"},
		{"drops", "#/drops", "worker (10.128.0.3) → db (10.128.1.1)"},
		{"policy", "#/policy/blue%2Fdb", "What its rules deny"},
	}
	also := map[string][]string{
		"overview":  {"blue/web", "comes in at host1", "leaves as 192.0.2.25", "worker (10.128.0.3) → db (10.128.1.1)"},
		"container": {"Services it is behind", "2 of 3 replicas"},
		"network":   {"blue/web", "laptop"},
		"found":     {"service web"},
		"trace":     {"service blue/db", "10.128.0.9 port 5432, host host1", "it is paused, being stopped, or not healthy", "in the way from app to db"},
	}
	b := browser(t)
	must(t, b.Look(1440, 900, "light"))
	must(t, b.Open(serve(t, answers)))
	must(t, b.Until(`document.querySelector(".health")`))
	prepareAxe(t, b)
	for _, look := range []struct {
		name   string
		width  int
		scheme string
		rules  []string // what may differ from the first look
	}{{"desk", 1440, "light", nil}, {"phone", 390, "dark", []string{"color-contrast", "scrollable-region-focusable"}}} {
		must(t, b.Look(look.width, 900, look.scheme))
		for _, s := range screens {
			_, err := Eval[any](b, "location.hash = "+quoted(s.hash)+"; null")
			must(t, err)
			must(t, b.Until("document.querySelector('main').dataset.at === "+quoted(s.hash)))
			text, err := Eval[string](b, "document.querySelector('main').innerText")
			must(t, err)
			for _, says := range append(also[s.name], s.says) {
				if !strings.Contains(text, says) {
					t.Errorf("%s on a %s: no %s in\n%s", s.name, look.name, says, text)
				}
			}
			if at := regexp.MustCompile(`\d [AP]M\b`).FindString(text); at != "" {
				t.Errorf("%s on a %s: a time of 12 hours beside those of 24: %s", s.name, look.name, at)
			}
			if n := strings.Count(text, "in the way from app to db"); n > 1 {
				t.Errorf("%s on a %s: its verdict is there %d times", s.name, look.name, n)
			}
			if s.name == "overview" {
				crossed, err := Eval[[]string](b, vinesThroughLabels)
				must(t, err)
				for _, label := range crossed {
					t.Errorf("on a %s the vine goes through %q", look.name, label)
				}
			}
			for _, v := range violations(t, b, look.rules...) {
				t.Errorf("%s on a %s: %s", s.name, look.name, v)
			}
			wide, err := Eval[bool](b, "document.documentElement.scrollWidth > innerWidth")
			must(t, err)
			if wide {
				t.Errorf("%s on a %s: wider than the window", s.name, look.name)
			}
			picture(t, b, look.name+"-"+s.name)
		}
	}
	for _, c := range b.Complaints() {
		t.Error(c)
	}
}

// vinesThroughLabels are the texts beside the trellis that a vine goes through.
const vinesThroughLabels = `[...document.querySelectorAll(".trellis .vine")].flatMap((v) => {
	const texts = [...v.parentNode.querySelectorAll("text")].map((t) => [t.textContent, t.getBBox()]), points = [...Array(400).keys()].map((i) => v.getPointAtLength((i * v.getTotalLength()) / 400));
	return texts.filter(([, b]) => points.some((p) => p.x > b.x && p.x < b.x + b.width && p.y > b.y && p.y < b.y + b.height)).map(([text]) => text);
})`

// TestPhone: on 360 pixels what is wider than the window scrolls within itself, and shows that it does, also beside a network that has no name yet.
func TestPhone(t *testing.T) {
	answers := recorded(t, "cluster.json")
	nameless := "provisional/" + strings.Repeat("0123456789abcdef", 4)
	for _, name := range []string{"networks", "ring", "endpoints"} {
		answers[name] = json.RawMessage(strings.ReplaceAll(string(answers[name]), `"red"`, quoted(nameless)))
	}
	b := browser(t)
	must(t, b.Look(360, 780, "light"))
	must(t, b.Open(serve(t, answers)))
	must(t, b.Until(`document.querySelector(".trellis")`))
	for _, hash := range []string{"#/", "#/addresses", "#/containers", "#/networks", "#/network/" + url.PathEscape(nameless), "#/traffic?all=true"} {
		_, err := Eval[any](b, "location.hash = "+quoted(hash)+"; null")
		must(t, err)
		must(t, b.Until(`document.querySelector("main").dataset.at === `+quoted(hash)))
		wide, err := Eval[int](b, "document.documentElement.scrollWidth")
		must(t, err)
		if wide > 360 {
			t.Errorf("%s is %d pixels wide", hash, wide)
		}
		mute, err := Eval[[]string](b, `[...document.querySelectorAll("nav, .wide")].filter((e) => e.scrollWidth > e.clientWidth && !getComputedStyle(e).backgroundAttachment.includes("local")).map((e) => e.className || e.localName)`)
		must(t, err)
		if len(mute) > 0 {
			t.Errorf("%s: nothing shows that %q scroll", hash, mute)
		}
		picture(t, b, "narrow"+strings.NewReplacer("/", "-", "?", "-", "%", "").Replace(hash[:min(len(hash), 20)]))
	}
	for _, c := range b.Complaints() {
		t.Error(c)
	}
}

// TestAddresses: the field for a search has what the screen was looked for with, and an address that is none is no screen of another one.
func TestAddresses(t *testing.T) {
	b := browser(t)
	must(t, b.Open(serve(t, recorded(t, "cluster.json"))))
	must(t, b.Until(`document.querySelector(".trellis")`))
	must(t, b.Type("#find input", "db"))
	must(t, b.Press("Enter"))
	must(t, b.Until(`document.querySelector("main").innerText.includes("1 of 7 containers with db")`))
	const field = `document.querySelector("#find input").value`
	for _, at := range [][2]string{{"#/hosts", ""}, {"#/containers?find=web", "web"}, {"#/containers", ""}} {
		_, err := Eval[any](b, "location.hash = "+quoted(at[0])+"; null")
		must(t, err)
		must(t, b.Until(`document.querySelector("main").dataset.at === `+quoted(at[0])))
		has, err := Eval[string](b, field)
		must(t, err)
		if has != at[1] {
			t.Errorf("%s: the field has %q", at[0], has)
		}
	}
	_, err := Eval[any](b, `location.hash = "#/network/%zz"; null`)
	must(t, err)
	time.Sleep(500 * time.Millisecond)
	text, err := Eval[string](b, `document.querySelector("main").innerText`)
	must(t, err)
	if !strings.Contains(text, "No such network") {
		t.Errorf("#/network/%%zz shows\n%s", text)
	}
	for _, c := range b.Complaints() {
		t.Error(c)
	}
}

func quoted(text string) string {
	data, _ := json.Marshal(text)
	return string(data)
}

// TestNamesAreText: names of containers, networks and hosts are their owners' words, and nothing but text.
func TestNamesAreText(t *testing.T) {
	answers := recorded(t, "cluster.json")
	for name, data := range answers {
		text := string(data)
		for _, own := range []string{"app", "host2", "web", "laptop", "mail", "worker"} {
			text = strings.ReplaceAll(text, quoted(own), quoted(hostile))
		}
		answers[name] = json.RawMessage(text)
	}
	b := browser(t)
	must(t, b.Open(serve(t, answers)))
	must(t, b.Until(`document.querySelector(".trellis")`))
	for _, hash := range []string{"#/", "#/containers", "#/hosts", "#/policies", "#/addresses", "#/traffic", "#/services", "#/edges", "#/drops", "#/trace?from=a&to=b", "#/doctor"} {
		_, err := Eval[any](b, "location.hash = "+quoted(hash)+"; null")
		must(t, err)
		must(t, b.Until(`document.querySelector("main").dataset.at === `+quoted(hash)))
		n, err := Eval[int](b, `document.querySelectorAll("main img, main script").length`)
		must(t, err)
		if n > 0 {
			t.Errorf("%s: a name has become %d elements", hash, n)
		}
	}
	_, err := Eval[any](b, `location.hash = "#/containers"; null`)
	must(t, err)
	must(t, b.Until(`document.querySelector("main").dataset.at === "#/containers"`))
	must(t, b.Until("document.querySelector('main').innerText.includes("+quoted(hostile)+")"))
	for _, c := range b.Complaints() {
		t.Error(c)
	}
}

// TestTokenOnce: the address works once; a reload keeps the session, which nobody else has.
func TestTokenOnce(t *testing.T) {
	address := serve(t, recorded(t, "cluster.json"))
	b := browser(t)
	must(t, b.Open(address))
	must(t, b.Until(`document.querySelector(".trellis")`))
	hash, err := Eval[string](b, "location.hash + document.cookie")
	must(t, err)
	if hash != "#/" {
		t.Errorf("the token is still to be seen: %s", hash)
	}
	must(t, b.Reload())
	must(t, b.Until(`document.querySelector(".trellis")`))
	other := browser(t)
	must(t, other.Open(address))
	must(t, other.Until(`document.querySelector("main").innerText.includes("was opened before")`))
}

// TestManyHosts: 24 hosts, 9 networks and 600 containers are on one map, on a phone as well. TestThousandHosts has what
// their screens cost.
func TestManyHosts(t *testing.T) {
	answers := recorded(t, "cluster.json")
	many(t, answers, 24, 9, 600)
	b := browser(t)
	must(t, b.Look(1440, 900, "dark"))
	must(t, b.Open(serve(t, answers)))
	must(t, b.Until(`document.querySelectorAll(".bunch").length > 100`))
	picture(t, b, "many")
	elements, err := Eval[int](b, "document.querySelectorAll('*').length")
	must(t, err)
	t.Logf("%d elements", elements)
	if elements > 2500 {
		t.Errorf("%d elements", elements)
	}
	must(t, b.Look(390, 844, "light"))
	_, err = Eval[any](b, "location.hash = '#/'; null")
	must(t, err)
	must(t, b.Until(`document.querySelectorAll(".bunch").length > 100`))
	picture(t, b, "many-phone")
	for _, c := range b.Complaints() {
		t.Error(c)
	}
}

// TestLive: a container that starts is seen at the next look, and who types or has the focus meanwhile is left alone.
func TestLive(t *testing.T) {
	answers := recorded(t, "cluster.json")
	var endpoints []api.Endpoint
	must(t, json.Unmarshal(answers["endpoints"], &endpoints))
	started := make(chan api.Endpoint, 1)
	b := browser(t)
	must(t, b.Open(serveAsks(t, answers, map[string]ui.Ask{"endpoints": func(context.Context, url.Values) (any, error) {
		select {
		case e := <-started:
			endpoints = append(endpoints, e) // the page asks one thing at a time of one kind
		default:
		}
		return endpoints, nil
	}})))
	must(t, b.Until(`document.querySelector(".trellis")`))
	_, err := Eval[any](b, `location.hash = "#/container/`+endpoints[0].Container+`"; null`)
	must(t, err)
	must(t, b.Until(`document.querySelector("main input[name=to]")`))
	must(t, b.Type("main input[name=to]", "db:54"))
	late := endpoints[0]
	late.ID, late.Container, late.Name = strings.Repeat("e", 64), strings.Repeat("c", 64), "late"
	started <- late
	must(t, b.Until(`[...document.querySelectorAll("main .chip")].some((e) => e.textContent === "late")`))
	has, err := Eval[string](b, `document.activeElement.name + "=" + document.activeElement.value`)
	must(t, err)
	if has != "to=db:54" {
		t.Errorf("who typed db:54 has %s", has)
	}
	must(t, b.Type("main input[name=to]", "32"))
	must(t, b.Press("Enter"))
	must(t, b.Until(`location.hash.startsWith("#/trace?from=") && location.hash.endsWith("db%3A5432")`))
	must(t, b.Until(`document.querySelector("main").innerText.includes("Nothing was found in the way")`))
	for _, c := range b.Complaints() {
		t.Error(c)
	}
}

// many puts so many hosts, networks and containers into the answers.
func many(t *testing.T, answers map[string]json.RawMessage, hosts, networks, containers int) {
	t.Helper()
	names := []string{"shop", "shop-db", "media", "iot", "ci", "auth", "mail", "lab", "ops"}
	var nodes []api.Node
	for i := range hosts {
		nodes = append(nodes, api.Node{
			ID: fmt.Sprintf("%016x", i), Name: fmt.Sprintf("h%02d", i+1), Alive: i != 9, Doubtful: i == 17, Self: i == 0, Path: "ok",
			VTEP: netip.AddrFrom4([4]byte{10, 0, byte((i + 1) / 256), byte(i + 1)}), Version: "1.4.0", Datapath: "kernel", MTU: 1500, VXLANPort: 4789,
		})
	}
	nets := make([]api.Network, networks)
	pools := make([]api.Pool, networks)
	for i := range nets {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128, byte(4 * i), 0}), 22)
		nets[i] = api.Network{Name: names[i%len(names)] + strings.Repeat("2", i/len(names)), VNID: uint32(i), Subnets: []api.Subnet{{Prefix: prefix, Gateway: prefix.Addr().Next()}}, Here: true}
		pools[i] = api.Pool{Network: nets[i].Name, Prefix: prefix}
		for j := range min(hosts, 16) {
			block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128, byte(4*i + j/4), byte(j % 4 * 64)}), 26)
			pools[i].Shares = append(pools[i].Shares, api.Share{Host: nodes[j].Name, Node: nodes[j].ID, Blocks: []netip.Prefix{block}, Part: 1. / 16})
		}
	}
	var endpoints []api.Endpoint
	for i := range containers {
		n, host := (i*i+i/7)%networks, (i*7+i/24)%hosts
		if host == 9 || n == 4 && i%3 == 0 {
			host = (i/5 + 10) % hosts
		}
		nets[n].Endpoints++
		endpoints = append(endpoints, api.Endpoint{
			ID: fmt.Sprintf("%064x", i), Container: fmt.Sprintf("%064x", i+1<<20), Name: fmt.Sprintf("%s-%d", nets[n].Name, i), Network: nets[n].Name,
			Host: nodes[host].Name, Here: host == 0, MAC: "0a:58:0a:80:00:02", Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 128, byte(4*n + i%4), byte(i / 4)})},
		})
	}
	for i := range nets {
		for _, n := range nodes {
			nets[i].Hosts = append(nets[i].Hosts, n.Name)
		}
	}
	answer(t, answers, "nodes", nodes)
	answer(t, answers, "networks", nets)
	answer(t, answers, "endpoints", endpoints)
	answer(t, answers, "ring", pools)
}
