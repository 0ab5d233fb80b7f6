package portreserve

import (
	"bytes"
	"testing"
)

// FuzzSockets: a line of /proc/net/tcp is left out or is a socket.
func FuzzSockets(f *testing.F) {
	f.Add([]byte("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n"))
	f.Add([]byte("0: B80D01200000000067452301EFCDAB89:0035 00000000000000000000000000000000:0000 07 0:0 0:0 0 0 0 18446744073709551615"))
	f.Add([]byte("0: 0100:0035 0 7 0 0 0 0 0 1\n0: : 0 0 0 0 0 0 0 0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list := parseSockets(bytes.NewReader(b))
		if len(list) > bytes.Count(b, []byte("\n"))+1 {
			t.Errorf("%q: %d sockets", b, len(list))
		}
		for _, s := range list {
			if !s.local.IsValid() {
				t.Errorf("%q: %+v", b, s)
			}
			_ = inTheWay(s, s.local)
		}
	})
}
