package cluster

import (
	"encoding/hex"
	"net/netip"
	"testing"
	"time"
)

// TestServiceForm: the wire form of a service is what agents of the first release with services write.
func TestServiceForm(t *testing.T) {
	const form = "02a10181a50109020103703030303030303030303030303030303106a80164626c756502637765620382440a01000950fd000000000000000000000000000009048183637463701850191f90056361707006a164746965726377656207f50865686f7374310768626c75652f776562"
	s := New(id(1))
	rec := put(t, s, Service{
		Network: "blue", Name: "web", Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.9"), netip.MustParseAddr("fd00::9")},
		Ports: []ServicePort{{Proto: "tcp", Port: 80, Target: 8080}}, Select: "app", Labels: map[string]string{"tier": "web"}, Affinity: true, Author: "host1",
	})
	if got := hex.EncodeToString(Encode([]Record{rec})); got != form {
		t.Errorf("wire form %s, want %s", got, form)
	}
	if _, ok := s.Delete(rec.Key, time.Unix(50, 0)); !ok {
		t.Fatal("not deleted")
	}
	if s.Expire([]Key{rec.Key}); !s.Snapshot().Tombstone(rec.Key) {
		t.Error("its tombstone has expired: a host that was away would bring it back, with an address that others have")
	}
}

func TestServiceLimits(t *testing.T) {
	good := Service{Network: "blue", Name: "web", Select: "web", Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.9")}, Ports: []ServicePort{{Proto: "tcp", Port: 80, Target: 80}}}
	if err := Validate(good); err != nil {
		t.Error(err)
	}
	for what, change := range map[string]func(*Service){
		"a slash": func(s *Service) { s.Name = "a/b" }, "no address": func(s *Service) { s.Addrs = nil }, "no port": func(s *Service) { s.Ports = nil },
		"port 0": func(s *Service) { s.Ports = []ServicePort{{Proto: "tcp", Port: 80}} }, "multicast": func(s *Service) { s.Addrs = []netip.Addr{netip.MustParseAddr("224.0.0.1")} },
		"no selection": func(s *Service) { s.Select = "" }, "an empty address": func(s *Service) { s.Addrs = []netip.Addr{{}} },
	} {
		bad := good
		if change(&bad); Validate(bad) == nil {
			t.Errorf("%s: taken", what)
		}
	}
}
