package main

import (
	"fmt"
	"io"
	"strings"

	"rsc.io/qr"
)

// quiet is how many light modules are around a code on each side: scanners want them.
const quiet = 4

// drawQR draws a text as a QR code, two modules a character: dark on light, whatever the terminal's own colours are.
func drawQR(w io.Writer, text string) error {
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		return fmt.Errorf("draw a QR code: %w", err)
	}
	dark := func(x, y int) bool { return code.Black(x, y) } // outside it is light
	var b strings.Builder
	for y := -quiet; y < code.Size+quiet; y += 2 {
		b.WriteString("\x1b[30;107m") // black on bright white
		for x := -quiet; x < code.Size+quiet; x++ {
			b.WriteString(halves[dark(x, y)][dark(x, y+1)])
		}
		b.WriteString("\x1b[0m\n")
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// halves are characters by whether their upper and their lower half is dark.
var halves = map[bool]map[bool]string{
	false: {false: " ", true: "▄"},
	true:  {false: "▀", true: "█"},
}
