// Package doctor finds out what is wrong with a host, and what to do about it. What
// is found (facts of this host, reports of probes to others) is judged by functions
// that do nothing else, so that each verdict can be tested without the trouble itself.
package doctor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/grapevine-net/grapevine/api"
)

func ok(subject, format string, a ...any) api.Check {
	return api.Check{Subject: subject, Verdict: api.OK, What: fmt.Sprintf(format, a...)}
}

func wrong(subject, do, format string, a ...any) api.Check {
	return api.Check{Subject: subject, Verdict: api.Wrong, What: fmt.Sprintf(format, a...), Do: do}
}

func unknown(subject, do, format string, a ...any) api.Check {
	return api.Check{Subject: subject, Verdict: api.Unknown, What: fmt.Sprintf(format, a...), Do: do}
}

// Problems makes checks of problems that somebody else has found; none: fine says what
// is well.
func Problems(subject, fine string, list []api.Problem) (checks []api.Check) {
	for _, p := range list {
		c := wrong(subject, p.Do, "%s", p.What)
		c.Code = p.Code
		checks = append(checks, c)
	}
	if checks == nil && fine != "" {
		checks = append(checks, ok(subject, "%s", fine))
	}
	return checks
}

// Sort puts what is wrong first, then what is unknown, and keeps the order otherwise.
func Sort(checks []api.Check) {
	rank := map[api.Verdict]int{api.Wrong: 0, api.Unknown: 1, api.OK: 2}
	slices.SortStableFunc(checks, func(a, b api.Check) int { return cmp.Compare(rank[a.Verdict], rank[b.Verdict]) })
}
