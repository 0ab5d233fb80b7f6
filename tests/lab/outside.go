package lab

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// Outside is a machine beyond the wire. It has a route to the wire only: what
// reaches it from a container has gone through NAT, or its answers would not
// come back.
type Outside struct {
	box *box
}

func startOutside(ctx context.Context, dir string, w *Wire) (*Outside, error) {
	b, err := startBox(dir, boxSpec{Hostname: "outside", Net: netSpec{IP: []string{"link set lo up"}}}, boxNamespaces)
	if err != nil {
		return nil, err
	}
	o := &Outside{box: b}
	if err := o.connect(ctx, w); err != nil {
		b.kill()
		return nil, fmt.Errorf("the outside: %w", err)
	}
	return o, nil
}

func (o *Outside) connect(ctx context.Context, w *Wire) error {
	if err := o.box.ready(ctx); err != nil {
		return err
	}
	router := []string{
		fmt.Sprintf("link add outside type veth peer name eth0 netns %d", o.box.pid()),
		"addr add " + outsideRouter4 + "/24 dev outside",
		"addr add " + outsideRouter6 + "/64 dev outside nodad",
		"link set outside up",
	}
	if err := enterNet(ctx, w.box.pid(), strings.Join(router, "\n")); err != nil {
		return err
	}
	own := []string{
		"addr add " + OutsideAddr + "/24 dev eth0",
		"addr add " + OutsideAddr6 + "/64 dev eth0 nodad",
		"link set eth0 up",
		"route add default via " + outsideRouter4,
		"route add ::/0 via " + outsideRouter6,
	}
	if _, err := o.box.run(ctx, request{Argv: []string{"ip", "-batch", "-"}, Stdin: []byte(strings.Join(own, "\n"))}); err != nil {
		return err
	}
	for role, listen := range map[string]string{roleWeb: "[::]:80", roleNames: "[::]:53"} {
		server := request{
			Op: opStart, Name: role, Argv: []string{"/proc/self/exe", listen},
			Env: []string{roleVar + "=" + role}, Log: o.box.logFile(),
		}
		if _, _, _, err := o.box.do(ctx, server); err != nil {
			return err
		}
	}
	return nil
}

// Exec runs a command on the outside machine and returns its standard output.
func (o *Outside) Exec(ctx context.Context, argv ...string) (string, error) {
	return o.box.run(ctx, request{Argv: argv})
}

// Program is Exec for what runs the lab's own program, which a host has in its share, as Rate does.
func (o *Outside) Program(ctx context.Context, argv ...string) (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	for i := range argv {
		argv[i] = strings.ReplaceAll(argv[i], labhost, own)
	}
	return o.Exec(ctx, argv...)
}

// Fetch gets an URL from the outside.
func (o *Outside) Fetch(ctx context.Context, url string) (string, error) {
	return o.box.run(ctx, fetchRequest(0, url, "/proc/self/exe"))
}
