package frames

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/net/bpf"
	"pgregory.net/rapid"
)

// frame makes one of Ethernet.
func frame(t *rapid.T, hosts []netip.Addr, ports []uint16) []byte {
	pick := rapid.SampledFrom(hosts)
	port := rapid.SampledFrom(ports)
	b := make([]byte, 12)
	from, to := pick.Draw(t, "from"), pick.Draw(t, "to")
	proto := rapid.SampledFrom([]uint8{1, 6, 17, 58, 132, 47}).Draw(t, "proto")
	switch {
	case rapid.IntRange(0, 5).Draw(t, "kind") == 0:
		b = binary.BigEndian.AppendUint16(b, typeARP)
		b = append(b, 0, 1, 8, 0, 6, 4, 0, 1)
		b = append(append(append(b, 0, 0, 0, 0, 0, 0), from.AsSlice()[:4]...), 0, 0, 0, 0, 0, 0)
		return append(b, to.AsSlice()[:4]...)
	case from.Is4() && to.Is4():
		words := rapid.IntRange(0, 2).Draw(t, "options")
		ip := make([]byte, 20+4*words)
		ip[0], ip[9] = byte(0x45+words), proto
		if rapid.Bool().Draw(t, "later") {
			ip[7] = 8
		}
		copy(ip[12:], from.AsSlice())
		copy(ip[16:], to.AsSlice())
		b = append(binary.BigEndian.AppendUint16(b, typeIPv4), ip...)
	case from.Is6() && to.Is6():
		ip := make([]byte, 40)
		ip[0], ip[6] = 0x60, proto
		copy(ip[8:], from.AsSlice())
		copy(ip[24:], to.AsSlice())
		b = append(binary.BigEndian.AppendUint16(b, typeIPv6), ip...)
	default:
		b = binary.BigEndian.AppendUint16(b, 0x88cc)
	}
	b = binary.BigEndian.AppendUint16(b, port.Draw(t, "source"))
	b = binary.BigEndian.AppendUint16(b, port.Draw(t, "destination"))
	return append(b, make([]byte, 20)...)
}

// TestFilter: the kernel's program lets pass what the filter says.
func TestFilter(t *testing.T) {
	hosts := []netip.Addr{netip.MustParseAddr("10.128.0.2"), netip.MustParseAddr("10.128.1.2"), netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd00::1:2"), netip.MustParseAddr("10.128.0.9")}
	ports := []uint16{80, 443, 5432}
	passed, dropped := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		f := Filter{
			Proto: rapid.SampledFrom([]string{"", "", "tcp", "udp", "icmp", "sctp", "arp", "47"}).Draw(t, "filter's protocol"),
			Port:  rapid.SampledFrom([]uint16{0, 0, 80, 443}).Draw(t, "filter's port"),
			Peers: rapid.SliceOfN(rapid.SampledFrom(hosts), 0, 3).Draw(t, "peers"),
		}
		program, err := f.Program()
		if err != nil {
			return // ports of what has none
		}
		b := frame(t, hosts, ports)
		got := len(b)
		if len(program) > 0 {
			code := make([]bpf.Instruction, len(program))
			for i, raw := range program {
				code[i] = raw.Disassemble()
			}
			vm, err := bpf.NewVM(code)
			if err != nil {
				t.Fatal(err)
			}
			if got, err = vm.Run(b); err != nil {
				t.Fatal(err)
			}
		}
		if want := f.Passes(b); (got > 0) != want {
			t.Fatalf("%+v of %x: the program passes %d bytes, want %v", f, b, got, want)
		}
		if got > 0 {
			passed++
		} else {
			dropped++
		}
	})
	if passed == 0 || dropped == 0 {
		t.Errorf("%d passed, %d did not: nothing was tried", passed, dropped)
	}
}

func TestFilterIsRefused(t *testing.T) {
	many := make([]netip.Addr, maxPeers+1)
	for _, f := range []Filter{{Proto: "tpc"}, {Proto: "icmp", Port: 80}, {Proto: "arp", Port: 80}, {Peers: many}} {
		if _, err := f.Program(); err == nil {
			t.Errorf("%+v is taken", f)
		}
	}
	// As many as may be are a program that the kernel takes.
	f := Filter{Proto: "tcp", Port: 80}
	for i := range maxPeers {
		f.Peers = append(f.Peers, netip.AddrFrom16([16]byte{0xfd, 15: byte(i)}))
	}
	const kernelTakes = 4096
	if p, err := f.Program(); err != nil || len(p) > kernelTakes {
		t.Errorf("%d instructions, %v", len(p), err)
	}
}

// TestHeaders: what other hosts are given of a packet has nothing of its payload in it.
func TestHeaders(t *testing.T) {
	ip4 := func(proto byte, behind ...byte) []byte {
		b := append(make([]byte, 12), 8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, proto, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
		return append(b, behind...)
	}
	tcp := make([]byte, 24)
	tcp[12] = 0x60
	secret := []byte("GET / HTTP/1.1 password")
	for name, tt := range map[string]struct {
		frame []byte
		want  int
	}{
		"tcp with options": {ip4(6, append(tcp, secret...)...), 14 + 20 + 24},
		"udp":              {ip4(17, append(make([]byte, 8), secret...)...), 14 + 20 + 8},
		"echo":             {ip4(1, append(make([]byte, 8), secret...)...), 14 + 20 + 8},
		"other":            {ip4(47, secret...), 14 + 20},
		"short":            {ip4(17, 1, 2), 14 + 20 + 2},
		"no IP":            {append(make([]byte, 12), append([]byte{0x88, 0xcc}, secret...)...), 14},
		"not even a frame": {[]byte{1, 2, 3}, 3},
	} {
		if got := Read(tt.frame).Headers; got != tt.want {
			t.Errorf("%s: %d bytes of headers, want %d", name, got, tt.want)
		}
	}
	for n := range 120 { // nor does any length make it panic
		f := ip4(6, append(tcp, secret...)...)
		Read(f[:min(n, len(f))])
	}
}

func TestDescribe(t *testing.T) {
	names := map[string]string{"10.0.0.1": "app", "10.0.0.2": "db"}
	called := func(a netip.Addr) string { return names[a.String()] }
	b := append(make([]byte, 12), 8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x9c, 0x40, 0x15, 0x38, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0)
	if got, want := Read(b).Describe(called), "app:40000 > db:5432  tcp S"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	b[23], b[34] = 1, 8
	if got, want := Read(b).Describe(called), "app > db  icmp echo request"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(append(make([]byte, 12), 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 44, 64))
	f.Add(append(make([]byte, 12), 8, 0, 0x4f, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		frame := Read(b)
		if frame.Headers < 0 || frame.Headers > len(b) {
			t.Errorf("%d bytes of headers of %d", frame.Headers, len(b))
		}
		frame.Describe(func(netip.Addr) string { return "" })
	})
}
