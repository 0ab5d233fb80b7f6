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

// StartFRR has the hosts' router run Debian's FRR with a configuration: zebra, which has in its kernel what bgpd is told.
func (l *Lab) StartFRR(ctx context.Context, config string) error {
	b, dir := l.Wire.box, l.sub("wire", "frr")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file := filepath.Join(dir, "frr.conf")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return err
	}
	// They want a user of their own, who makes their sockets there.
	if _, err := b.run(ctx, request{Argv: []string{"chown", "frr:frr", dir}}); err != nil {
		return err
	}
	for _, name := range []string{"zebra", "bgpd"} {
		argv := []string{"/usr/lib/frr/" + name, "-f", file, "-z", filepath.Join(dir, "zserv.api"), "-i", filepath.Join(dir, name+".pid"), "--vty_socket", dir, "-P", "0", "--log", "stdout"}
		if _, _, _, err := b.do(ctx, request{Op: opStart, Name: name, Argv: argv, Log: b.logFile()}); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) birdSocket() string { return filepath.Join(l.sub("wire"), "bird.ctl") }

// OnRouter runs a command on the hosts' router and returns its standard output; birdc asks the bird, and
// vtysh the FRR, that runs there.
func (l *Lab) OnRouter(ctx context.Context, argv ...string) (string, error) {
	if argv[0] == "birdc" {
		argv = append([]string{"birdc", "-s", l.birdSocket()}, argv[1:]...)
	}
	if argv[0] == "vtysh" {
		argv = append([]string{"vtysh", "--vty_socket", l.sub("wire", "frr")}, argv[1:]...)
	}
	return l.Wire.box.run(ctx, request{Argv: argv})
}
