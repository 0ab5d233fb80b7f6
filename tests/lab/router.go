package lab

import (
	"context"
	"os"
	"path/filepath"
)

// StartBird has the hosts' router run Debian's bird with a configuration. Routes that it is told of it has in its kernel
// if the configuration says so.
func (l *Lab) StartBird(ctx context.Context, config string) error {
	file := filepath.Join(l.sub("wire"), "bird.conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return err
	}
	b := l.Wire.box
	_, _, _, err := b.do(ctx, request{Op: opStart, Name: "bird", Argv: []string{"bird", "-f", "-c", file, "-s", l.birdSocket()}, Log: b.logFile()})
	return err
}

func (l *Lab) birdSocket() string { return filepath.Join(l.sub("wire"), "bird.ctl") }

// OnRouter runs a command on the hosts' router and returns its standard output; birdc asks the bird that runs there.
func (l *Lab) OnRouter(ctx context.Context, argv ...string) (string, error) {
	if argv[0] == "birdc" {
		argv = append([]string{"birdc", "-s", l.birdSocket()}, argv[1:]...)
	}
	return l.Wire.box.run(ctx, request{Argv: argv})
}
