package overlay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
)

// TestHellosInside: a hello to a host's VTEP inside WireGuard goes there, beside one to its plain VTEP, and comes out of the
// gateway port by either.
func TestHellosInside(t *testing.T) {
	for name, mode := range map[string]pipeline.TunnelMode{"metadata": pipeline.Metadata, "header bits": pipeline.HeaderBits} {
		t.Run(name, func(t *testing.T) {
			b, port := sceneSwitch(t, mode)
			before := scene(mode, port)
			in := scene(mode, port)
			inside := addr("fd67:7261:7065:1::2")
			in.VTEPs = append(in.VTEPs, pipeline.VTEP{Addr: inside, Index: 4, Host: in.VTEPs[0].Host, Secure: true, Beside: true})
			was, err := pipeline.Compile(before)
			if err != nil {
				t.Fatal(err)
			}
			want, err := pipeline.Compile(in)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.ApplyBundle(t.Context(), pipeline.Diff(was, want).Lines()); err != nil {
				t.Fatal(err)
			}
			for to, by := range map[string][2]string{"192.0.2.2": {"tun_dst", "tun_src"}, inside.String(): {"tun_ipv6_dst", "tun_ipv6_src"}} {
				got, text := verdict(t, b, in, fmt.Sprintf("in_port=gv0,dl_src=02:42:00:00:00:02,dl_dst=%v,dl_type=0x88b5", pipeline.ProbeMAC(addr(to))))
				if got != fmt.Sprintf("output:%d", port["gvtun"]) || mode == pipeline.Metadata && !strings.Contains(text, "set_field:"+to+"->"+by[0]) {
					t.Errorf("to %s: %s\n%s", to, got, text)
				}
				if mode != pipeline.Metadata {
					continue
				}
				got, text = verdict(t, b, in, fmt.Sprintf("in_port=gvtun,%s=%s,tun_id=0,dl_src=02:42:00:00:00:02,dl_dst=%v,dl_type=0x88b5", by[1], to, pipeline.ProbeMAC(addr("192.0.2.1"))))
				if got != fmt.Sprintf("output:%d", port["gv0"]) {
					t.Errorf("from %s: %s\n%s", to, got, text)
				}
			}
		})
	}
}
