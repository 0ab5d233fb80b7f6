package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/grapevine-net/grapevine/tests/chaos/verdict"
	"github.com/grapevine-net/grapevine/tests/lab"
)

// read asks a host's agent and its Docker.
func read(ctx context.Context, h *lab.Host) (verdict.Facts, error) {
	f := verdict.Facts{Host: h.Name}
	text, err := h.Exec(ctx, "sh", "-ec", "for what in status nodes networks endpoints ring; do grapevine $what -o json; done")
	if err != nil {
		return f, err
	}
	all := json.NewDecoder(strings.NewReader(text))
	for _, part := range []any{&f.Status, &f.Nodes, &f.Networks, &f.Endpoints, &f.Ring} {
		if err := all.Decode(part); err != nil {
			return f, fmt.Errorf("read what grapevine says: %w", err)
		}
	}
	f.Containers, err = containers(ctx, h)
	return f, err
}

// containers are those that run on networks of grapevine's. A network that goes meanwhile has none.
func containers(ctx context.Context, h *lab.Host) (list []verdict.Container, err error) {
	const script = `n=$(docker network ls -q --filter driver=grapevine) && [ -n "$n" ] || exit 0
		{ said=$(docker network inspect --format '{{$n := .Name}}{{range .Containers}}{{.Name}} {{$n}} {{.IPv4Address}}{{"\n"}}{{end}}' $n 2>&1 >&3) ||
			if echo "$said" | grep -v 'not found' >&2; then exit 1; fi; } 3>&1`
	text, err := h.Exec(ctx, "sh", "-ec", script)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		if len(w) != 3 {
			continue
		}
		p, err := netip.ParsePrefix(w[2])
		if err != nil {
			return nil, err
		}
		list = append(list, verdict.Container{Name: w[0], Network: w[1], Addr: p.Addr()})
	}
	return list, nil
}
