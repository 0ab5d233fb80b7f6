package exposed

import (
	"fmt"
	"net"
	"net/http"
	"path"
	"path/filepath"
	"testing"

	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/host/docker"
	"github.com/grapevine-net/grapevine/service/expose"
)

// TestReserved: no service gets what hosts hear without a socket that would be in its way, such as DHCP's answers.
func TestReserved(t *testing.T) {
	t.Parallel()
	kept := Reserved(config.Config{Port: 7947, VXLANPort: 4789})
	for _, port := range []string{"7947/tcp", "7947/udp", "4789/udp", "68/udp", "546/udp"} {
		if kept[port] == "" {
			t.Errorf("a service may have port %s of all hosts", port)
		}
	}
	for _, port := range []string{"53/udp", "67/udp", "68/tcp", "443/tcp"} {
		if why := kept[port]; why != "" {
			t.Errorf("no service may have port %s, %s", port, why)
		}
	}
}

// TestPublishers: a container of which Docker does not tell is in no other's way, and each of which it has told is asked for once.
func TestPublishers(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	asked, busy := map[string]int{}, true // the server's, which nobody asks two things at once
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Content-Type", "application/json")
		id := path.Base(path.Dir(r.URL.Path))
		switch {
		case path.Base(r.URL.Path) != "json": // a ping
		case id == "containers":
			fmt.Fprintln(w, `[{"Id":"a","Names":["/a"]},{"Id":"b","Names":["/b"]},{"Id":"c","Names":["/c"]}]`)
		case id == "b" && busy:
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintln(w, `{"message":"it is being started"}`)
		default:
			asked[id]++
			fmt.Fprintf(w, `{"Id":%q,"HostConfig":{"PortBindings":{"80/tcp":[{"HostPort":"444"}]}}}`, id)
		}
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })

	publishers := (&Room{cfg: Config{Docker: docker.New("unix://" + socket)}}).publishers()
	for _, want := range []string{"a c", "a c", "a b c"} {
		busy = want != "a b c"
		list, err := publishers(t.Context())
		got := ""
		for _, p := range list {
			if !p.Has(expose.Port{Port: 444}) || p.Has(expose.Port{Port: 445}) {
				t.Errorf("%s has other ports", p.Name)
			}
			got += " " + p.Name
		}
		if got != " "+want || (err != nil) != busy {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
	if got := fmt.Sprint(asked); got != "map[a:1 b:1 c:1]" {
		t.Errorf("asked for: %s", got)
	}
}
