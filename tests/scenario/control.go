package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/tests/lab"
)

var controlCommands = map[string]command{"as-bridge": asBridge}

// prelude is what each case begins with. A case is a shell script that ends with the first
// command that fails. It has $n, the beginning of all names that it gives; $driver; $D, what
// `docker network create` needs for networks of that driver; $I, the part of it about
// addresses; $s and $s6, the beginning of subnets that nobody else has: $s.0.0/16 and
// $s6::/48; $p to $p+9, ports of the host; $engine, the release's first number.
const prelude = `set -e
# net makes a network; bridge's own pools are too few for all.
nets=200
net() {
	case "$driver $*" in "bridge "*--subnet*) ;; bridge*) nets=$((nets+1)); set -- --subnet $s.$nets.0/24 "$@";; esac
	docker network create $D "$@" >/dev/null
}
# since N: engines before N have no such thing.
since() { [ "$engine" -ge "$1" ] || exit 77; }
run() { docker run -d "$@" >/dev/null; }
# fails REGEXP COMMAND...: it does, and says that.
fails() { re=$1; shift; if out=$("$@" 2>&1); then echo "this succeeded: $*"; exit 1; fi; echo "$out" | grep -qiE -e "$re" || { echo "$* failed with: $out"; exit 1; }; }
# has REGEXP COMMAND...: what it says matches; hasnt: it does not.
has() { re=$1; shift; out=$("$@" 2>&1) || { echo "$* failed with: $out"; exit 1; }; echo "$out" | grep -qE -e "$re" || { echo "$* said, without $re: $out"; exit 1; }; }
hasnt() { re=$1; shift; out=$("$@" 2>&1) || { echo "$* failed with: $out"; exit 1; }; if echo "$out" | grep -qE -e "$re"; then echo "$* said: $out"; exit 1; fi; }
# soon COMMAND...: it works within 20 s: a loaded machine is slow.
soon() { for i in $(seq 100); do if last=$( "$@" 2>&1 ); then return 0; fi; sleep 0.2; done; echo "for 20 s: $*: $last"; exit 1; }
is() { [ "$1" = "$2" ] || { echo "this is $1, not $2"; exit 1; }; }
pings() { soon docker exec "$1" ping -c 1 -W 1 "$2"; }
silent() { if docker exec "$1" ping -c 1 -W 1 "$2" >/dev/null 2>&1; then echo "$1 reaches $2"; exit 1; fi; }
inspect() { docker inspect -f "$2" "$1"; }
addr() { inspect "$1" "{{(index .NetworkSettings.Networks \"${2:-$n}\").IPAddress}}"; }
# knows CONTAINER NAME: its resolver does; ignores: it does not.
resolved() { docker exec "$1" nslookup -type=a "$2" 2>&1 | sed 1,2d | grep -q Address; }
knows() { soon resolved "$1" "$2"; }
unknown() { ! resolved "$1" "$2"; }
ignores() { soon unknown "$1" "$2"; }
`

// caseResult is what came of one case on networks of one driver.
type caseResult struct {
	name, driver string
	number       int // of this one among all
	said         string
	err          error
	took         time.Duration
	skipped      bool // the engine has no such thing
	goesOn       bool // in another phase
}

// asBridge runs cases, which are files of the script that are named NAME.sh, or with
// `later` NAME.later.sh, which finds the containers of NAME.sh: each once on networks of bridge and once on those of grapevine.
// They all work with both, but for those in the file `differences`: lines of
//
//	DRIVER ENGINES CASE REASON
//
// with ENGINES the first numbers of Docker's releases, as 20,26, or *. Those must fail.
func asBridge(ctx context.Context, s *state, args []string) (string, error) {
	if s.lab == nil || len(args) > 1 {
		return "", usageError("usage, after hosts: as-bridge [later]")
	}
	h := s.lab.Hosts[0]
	version, err := h.Docker(ctx, "version", "-f", "{{.Server.Version}}")
	if err != nil {
		return "", err
	}
	engine, _, _ := strings.Cut(version, ".")
	known, err := knownDifferences(filepath.Join(s.dir, "differences"), engine)
	if err != nil {
		return "", err
	}
	phase := strings.Join(args, "")
	files, err := filepath.Glob(filepath.Join(s.dir, "*.sh"))
	if err != nil || len(files) == 0 {
		return "", usageError(fmt.Sprintf("no cases: %v", err))
	}
	var results []caseResult
	var texts []string
	for i, file := range files {
		name, of, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".sh"), ".")
		if of != phase {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		for j, driver := range []string{"bridge", "grapevine"} {
			_, err := os.Stat(filepath.Join(s.dir, name+".later.sh"))
			results = append(results, caseResult{name: name, driver: driver, number: 2*i + j, goesOn: err == nil})
			texts = append(texts, string(text))
		}
	}
	var g errgroup.Group
	g.SetLimit(6)
	for i := range results {
		g.Go(func() error {
			results[i].run(ctx, h, engine, texts[i])
			return nil
		})
	}
	_ = g.Wait()
	return judge(results, known)
}

func (r *caseResult) run(ctx context.Context, h *lab.Host, engine, text string) {
	ipam := ""
	if r.driver == "grapevine" {
		ipam = "--ipam-driver grapevine"
	}
	subnet := r.number + 1
	if subnet >= 128 { // the cluster's own are 10.128.0.0/14
		subnet += 4
	}
	vars := fmt.Sprintf("n=%c-%s driver=%s I='%s' D='-d %s %s' s=10.%d s6=fd00:%x p=%d engine=%s image=%s outside=%s\n",
		r.driver[0], r.name, r.driver, ipam, r.driver, ipam, subnet, subnet, 20000+10*r.number, engine, lab.Image, lab.OutsideAddr)
	begin := time.Now()
	r.said, r.err = h.ExecInput(ctx, []byte(vars+prelude+text), "sh", "-c", `eval "$(cat)"`)
	r.took = time.Since(begin)
	if !r.goesOn { // the more containers there are, the longer everything takes
		name := fmt.Sprintf("%c-%s", r.driver[0], r.name)
		_, _ = h.Exec(ctx, "sh", "-c", "docker rm -fv $(docker ps -aq --filter 'name=^/?"+name+"(-[a-z0-9]+)?$')")
	}
	var exit *lab.ExitError
	if errors.As(r.err, &exit) && exit.Code == 77 {
		r.err, r.skipped = nil, true
	}
}

type controlKey struct{ driver, name string }

// knownDifferences reads those of the given engine, with their reasons.
func knownDifferences(file, engine string) (map[controlKey]string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	known := map[controlKey]string{}
	for line := range strings.Lines(string(text)) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 4)
		if words[0] == "" {
			continue
		}
		if len(words) < 4 {
			return nil, usageError("not DRIVER ENGINES CASE REASON: " + line)
		}
		if words[1] == "*" || slices.Contains(strings.Split(words[1], ","), engine) {
			known[controlKey{words[0], words[2]}] = words[3]
		}
	}
	return known, nil
}

// judge says what came of each case, and what is otherwise than it should be.
func judge(results []caseResult, known map[controlKey]string) (string, error) {
	slices.SortFunc(results, func(a, b caseResult) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.driver, b.driver))
	})
	var b strings.Builder
	var errs []error
	for _, r := range results {
		reason, listed := known[controlKey{r.driver, r.name}]
		switch {
		case r.err != nil && !listed:
			errs = append(errs, fmt.Errorf("%s with %s: %w\n%s", r.name, r.driver, r.err, r.said))
		case r.err == nil && listed && !r.skipped:
			errs = append(errs, fmt.Errorf("%s with %s works, and is listed as different: %s", r.name, r.driver, reason))
		}
		word := "works"
		if r.err != nil {
			word = "fails"
		} else if r.skipped {
			word = "-"
		}
		fmt.Fprintf(&b, "%-28s %-10s %s %5.1f s %s\n", r.name, r.driver, word, r.took.Seconds(), reason)
	}
	return b.String(), errors.Join(errs...)
}
