package pcapng_test

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/grapevine-net/grapevine/observe/pcapng"
)

// A capture is blocks, one behind the other: a section, its interfaces, what addresses are called, and packets.
func Example() {
	capture := pcapng.Section{Application: "example"}.Append(nil)
	capture = pcapng.Interface{Name: "web", Snap: 96}.Append(capture)
	capture = pcapng.Names{netip.MustParseAddr("10.128.0.2"): "web.blue"}.Append(capture)
	capture = pcapng.Packet{At: time.Unix(1, 0), Data: make([]byte, 60), Length: 1514, Out: true}.Append(capture)

	r := pcapng.NewReader(bytes.NewReader(capture))
	for {
		p, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(p.At.UTC().Format(time.TimeOnly), len(p.Data), "of", p.Length, "bytes, out:", p.Out)
	}
	fmt.Println(r.Names)
	// Output:
	// 00:00:01 60 of 1514 bytes, out: true
	// map[10.128.0.2:web.blue]
}
