package scenario

import (
	"context"
	"fmt"
	"regexp"

	"github.com/grapevine-net/grapevine/tests/lab"
)

var composeCommands = map[string]command{
	"example": example,
	"compose": compose,
}

// exampleScript puts an example at /srv. Nothing can be pulled in the lab: its image
// stands in for the example's, under their names, so that the file is used as it is.
const exampleScript = `
cp -r "/lab/examples/$1" /srv/ && cd "/srv/$1" && echo GRAPEVINE=grapevine > .env
for image in $(docker compose config --images); do docker tag "$2" "$image" || exit; done
`

// example NAME HOST...: put examples/NAME at /srv/NAME on the hosts.
func example(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 2 {
		return "", usageError("usage: example NAME HOST...")
	}
	return "", s.each(ctx, args[1:], func(h *lab.Host, ctx context.Context) error {
		_, err := h.Exec(ctx, "sh", "-c", exampleScript, "example", args[0], lab.Image)
		return err
	})
}

// warned matches what Compose says when something is not as it expects it to be.
var warned = regexp.MustCompile(`(?i)warn|orphan|still in use`)

// compose HOST NAME ARGUMENTS...: docker compose for /srv/NAME on the host. That it
// warns is an error.
func compose(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 3 {
		return "", usageError("usage: compose HOST NAME ARGUMENTS...")
	}
	h, err := s.host(args[0])
	if err != nil {
		return "", err
	}
	script := []string{"sh", "-c", `cd "/srv/$1" && shift && exec docker compose --ansi never "$@" 2>&1`, "compose"}
	out, err := h.Exec(ctx, append(script, args[1:]...)...)
	if err == nil && warned.MatchString(out) {
		err = fmt.Errorf("compose on %s warns:\n%s", args[0], out)
	}
	return out, err
}
