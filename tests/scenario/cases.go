package scenario

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/tests/lab"
)

var casesCommands = map[string]command{"cases": cases}

// casePorts are where each container of cases listens, and what is tried of each other one.
var casePorts = []string{"80", "81", "udp/80", "udp/81"}

// policyCase is a state of all policies, and what passes in it.
type policyCase struct {
	name, policies string
	// expected says of what passes, in order: the last that matches counts. Without any everything does.
	expected []passes
}

type passes struct {
	from, to string
	ports    []string // none: all
	not      bool
}

// cases FILE HOST:CONTAINER...: one after the other, the policies of each case are in force, and nothing else, and each
// container reaches of each other one what the case says, by TCP and UDP at ports 80 and 81. A container web2 is meant where
// web is. In the file a case is
//
//	== its name
//	deny FROM TO [PORT...]
//	allow FROM TO [PORT...]
//	---
//	policies, in which $web is the container's address
//
// FROM and TO are names of containers, or * and what they end with, or what they begin with and *.
func cases(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 3 {
		return "", usageError("usage: cases FILE HOST:CONTAINER HOST:CONTAINER...")
	}
	text, err := os.ReadFile(filepath.Join(s.dir, args[0]))
	if err != nil {
		return "", usageError(err.Error())
	}
	list, err := policyCases(string(text))
	if err != nil {
		return "", err
	}
	var containers []lab.Container
	addrs := []string{}
	for _, ref := range args[1:] {
		c, err := s.container(ctx, ref)
		if err != nil {
			return "", err
		}
		containers = append(containers, c)
		addrs = append(addrs, "$"+c.Name, c.AllAddrs()[0].String())
	}
	// The longer one of two names first: $web2 is not $web and a 2.
	slices.SortFunc(containers, func(a, b lab.Container) int { return len(b.Name) - len(a.Name) })
	addrs = addrs[:0]
	for _, c := range containers {
		addrs = append(addrs, "$"+c.Name, c.AllAddrs()[0].String())
	}
	var said strings.Builder
	var had []string
	for i, one := range list {
		begin := time.Now()
		one.policies = strings.NewReplacer(addrs...).Replace(one.policies)
		if had, err = s.inForce(ctx, s.lab.Hosts[i%len(s.lab.Hosts)], one.policies, had); err != nil {
			return said.String(), fmt.Errorf("case %q: %w", one.name, err)
		}
		late, err := s.passes(ctx, one, containers)
		if err != nil {
			return said.String(), fmt.Errorf("case %q: %w", one.name, err)
		}
		fmt.Fprintf(&said, "%s (%.1f s)%s\n", one.name, time.Since(begin).Seconds(), late)
	}
	return said.String(), nil
}

func policyCases(text string) (list []policyCase, err error) {
	for part := range strings.SplitSeq("\n"+text, "\n== ") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		head, policies, _ := strings.Cut(part+"\n", "\n---\n")
		lines := strings.Split(strings.TrimSpace(head), "\n")
		one := policyCase{name: lines[0], policies: policies}
		for _, line := range lines[1:] {
			words := strings.Fields(line)
			if len(words) < 3 || words[0] != "allow" && words[0] != "deny" {
				return nil, usageError("not allow|deny FROM TO [PORT...]: " + line)
			}
			one.expected = append(one.expected, passes{words[1], words[2], words[3:], words[0] == "deny"})
		}
		list = append(list, one)
	}
	return list, nil
}

// inForce has a host apply policies, and delete the others that there were. It returns which there are, when all hosts have them.
func (s *state) inForce(ctx context.Context, h *lab.Host, policies string, had []string) (has []string, err error) {
	const names = `grapevine policy list -o json | jq -r '.policies[] | "\(.kind) \(if .network then .network + "/" else "" end)\(.name) \(.version)"'`
	list := func(h *lab.Host) ([]string, error) {
		out, err := h.Exec(ctx, "sh", "-c", names)
		return slices.Sorted(slices.Values(strings.Split(strings.TrimSpace(out), "\n"))), err
	}
	// What goes with the names that stay is changed, not deleted and made anew.
	kept := map[string]bool{}
	if strings.TrimSpace(policies) != "" {
		out, err := h.ExecInput(ctx, []byte(policies), "grapevine", "policy", "apply", "-f", "-")
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(out) {
			if words := strings.Fields(line); len(words) > 1 {
				kept[words[0]+" "+words[1]] = true
			}
		}
	}
	for _, policy := range had {
		if words := strings.Fields(policy); len(words) == 3 && !kept[words[0]+" "+words[1]] {
			if _, err := h.Exec(ctx, "grapevine", "policy", "delete", words[0], words[1]); err != nil {
				return nil, err
			}
		}
	}
	if has, err = list(h); err != nil {
		return nil, err
	}
	for _, other := range s.lab.Hosts {
		err := lab.Eventually(ctx, 20*time.Second*s.patience(), func() error {
			heard, err := list(other)
			if err == nil && !slices.Equal(heard, has) {
				err = fmt.Errorf("%s has the policies %q, and %s has %q", other.Name, heard, h.Name, has)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return has, nil
}

// passes waits until between the containers passes what a case says, and nothing else. It returns what did not at first.
func (s *state) passes(ctx context.Context, one policyCase, containers []lab.Container) (late string, err error) {
	within := 500 * time.Millisecond
	err = lab.Eventually(ctx, 20*time.Second*s.patience(), func() error {
		var mu sync.Mutex
		wrong := map[string]bool{}
		var g errgroup.Group
		for _, from := range containers {
			g.Go(func() error {
				want := map[string]bool{}
				what := map[string]string{}
				for _, to := range containers {
					for _, port := range casePorts {
						if to.Name != from.Name {
							proto, number, udp := strings.Cut(port, "/")
							if !udp {
								proto, number = "", port
							} else {
								proto += "/"
							}
							at := fmt.Sprintf("%s%s:%s", proto, to.AllAddrs()[0], number)
							want[at], what[at] = one.allows(from.Name, to.Name, port), fmt.Sprintf("%s to %s, %s", from.Name, to.Name, port)
						}
					}
				}
				said, err := from.Survey(ctx, within, slices.Collect(maps.Keys(want))...)
				mu.Lock()
				defer mu.Unlock()
				for at, is := range want {
					if _, got := said[at]; err == nil && got != is {
						wrong[fmt.Sprintf("%s: passes %t, want %t", what[at], got, is)] = true
					}
				}
				return err
			})
		}
		err := g.Wait()
		within = min(2*within, 4*time.Second) // a busy host takes longer to answer
		if n := len(wrong); err == nil && n > 0 {
			list := slices.Sorted(maps.Keys(wrong))
			err = fmt.Errorf("%d verdicts differ:\n%s", n, strings.Join(list[:min(n, 10)], "\n"))
			late += fmt.Sprintf("\n\twithin %s %s", within/2, err)
		}
		return err
	})
	return late, err
}

func (c *policyCase) allows(from, to, port string) bool {
	is := true
	for _, e := range c.expected {
		if named(e.from, from) && named(e.to, to) && (len(e.ports) == 0 || slices.Contains(e.ports, port)) {
			is = !e.not
		}
	}
	return is
}

// named says whether a pattern means a container.
func named(pattern, name string) bool {
	name = strings.TrimRight(name, "23456789")
	if begin, any := strings.CutSuffix(pattern, "*"); any {
		return strings.HasPrefix(name, begin)
	}
	if end, any := strings.CutPrefix(pattern, "*"); any {
		return strings.HasSuffix(name, end)
	}
	return pattern == name
}
