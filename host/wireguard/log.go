package wireguard

import (
	"log"
	"os"

	"golang.zx2c4.com/wireguard/device"
)

// logLimit is how long the log of a device's process gets, bytes. It is in memory (/run), and there is a line for each packet
// that cannot be sent, as while the underlay has no route.
const logLimit = 256 << 10

// logger says the errors of a device's process on its standard output, which is its log. What else is said is counted, as
// far as it is of packets that are refused.
func logger(name string, refused *refusals) *device.Logger {
	return &device.Logger{Verbosef: refused.hear, Errorf: log.New(bounded{os.Stdout}, "ERROR: "+name+": ", log.Ldate|log.Ltime).Printf}
}

// bounded is a file to which is only appended: it is emptied when it has become too long.
type bounded struct{ *os.File }

func (b bounded) Write(line []byte) (int, error) {
	if info, err := b.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > logLimit && b.Truncate(0) == nil {
		_, _ = b.WriteString("(what was said before is gone: it was too much)\n")
	}
	return b.File.Write(line)
}
