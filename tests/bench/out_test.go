package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The table takes the place of the former one, and says what is reached.
func TestWrite(t *testing.T) {
	b := &bench{options: options{kind: "namespace"}, samples: samples{}, tables: []place{{twoHosts, nil, overlay, figures}, {oneHost, nil, overlay, figures}, {outward, nil, bridge, toOutside}}, machine: "A machine."}
	for _, at := range b.tables {
		for _, f := range at.rows() {
			for _, v := range []float64{1, 2, 4} {
				b.samples.add(f.name, at.name+at.peer, v)
				b.samples.add(f.name, at.name+grapevine, 1.1*v)
				if at.name == twoHosts {
					b.samples.add(f.name, at.name+held, v/2)
				}
			}
		}
	}
	file := filepath.Join(t.TempDir(), "figures.md")
	const begin, end = "Before.\n<!-- bench namespace: begin -->\n", "<!-- bench namespace: end -->\n<!-- bench namespace outside: begin -->\nold\n<!-- bench namespace outside: end -->\nAfter.\n"
	for range 2 {
		if err := os.WriteFile(file, []byte(begin+"old\n"+end), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.write(file); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(text); !strings.HasPrefix(s, begin+"A machine.\n") || !strings.HasSuffix(s, "\n<!-- bench namespace outside: end -->\nAfter.\n") || strings.Contains(s, "old") {
		t.Error(s)
	}
	for _, want := range []string{
		"| TCP, 1 stream (Gbit/s) | - | 2.00 | 2.20 | - | 1.00 | 1.10 | at least 1.10 | reached | 0.50 |",
		"| UDP, 64 bytes (kpackets/s) | - | 2.0 | 2.2 | - | 1.0 | 1.10 | at least 1.30 | missed | 0.50 |",
		"| round trip (ms) | - | 2.0000 | 2.2000 | - | - | 1.10 | at most 1.00 | missed | - |",
		"| TCP, up (Gbit/s) | 2.00 | 2.20 | - | 1.10 | at least 1.00 | reached | - |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no line %q in\n%s", want, text)
		}
	}
	plot, err := os.Open(strings.TrimSuffix(file, ".md") + "-namespace.svg")
	if err != nil {
		t.Fatal(err)
	}
	defer plot.Close()
	dots := 0
	for d := xml.NewDecoder(plot); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
			dots++
		}
	}
	if want := 2 * len(all()); dots != want {
		t.Errorf("%d dots, want %d", dots, want)
	}
	if _, err := between([]byte("nothing"), "namespace", ""); err == nil {
		t.Error("no error without the lines")
	}
}
