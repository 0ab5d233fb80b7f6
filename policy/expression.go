package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// maxExpression is how long an expression may be, and maxKey a label's name, as in a policy.
const (
	maxExpression = 255
	maxKey        = 317
)

var setBased = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(\S+)\s+(in|notin)\s*\(([^()]*)\)$`) })

// ParseExpression reads one requirement as `kubectl get --selector` writes it: role=mail, role!=mail, role, !role,
// role in (mail, smtp), role notin (mail, smtp).
func ParseExpression(text string) (r Requirement, err error) {
	text = strings.TrimSpace(text)
	if len(text) > maxExpression {
		return r, fmt.Errorf("%.60q... has more than %d bytes", text, maxExpression)
	}
	if m := setBased().FindStringSubmatch(text); m != nil {
		r = Requirement{Key: m[1], Op: map[string]Op{"in": In, "notin": NotIn}[m[2]]}
		for value := range strings.SplitSeq(m[3], ",") {
			r.Values = append(r.Values, strings.TrimSpace(value))
		}
		slices.Sort(r.Values)
		r.Values = slices.Compact(r.Values)
		return r, r.check(text)
	}
	key, value, equal := strings.Cut(text, "=")
	switch {
	case equal && strings.HasSuffix(key, "!"):
		r = Requirement{strings.TrimSpace(strings.TrimSuffix(key, "!")), NotIn, []string{strings.TrimSpace(value)}}
	case equal:
		r = Requirement{strings.TrimSpace(key), In, []string{strings.TrimSpace(strings.TrimPrefix(value, "="))}}
	case strings.HasPrefix(text, "!"):
		r = Requirement{Key: strings.TrimSpace(text[1:]), Op: DoesNotExist}
	default:
		r = Requirement{Key: text, Op: Exists}
	}
	return r, r.check(text)
}

var errExpression = errors.New("is no label selector: say role=mail, role!=mail, role, !role, role in (mail,smtp) or role notin (mail,smtp)")

// check is an error if a requirement, read from a text, cannot be meant so.
func (r Requirement) check(text string) error {
	switch {
	case r.Key == "" || strings.ContainsAny(r.Key, " \t\n,()!="):
		return fmt.Errorf("%.80q %w", text, errExpression)
	case len(r.Key) > maxKey:
		return fmt.Errorf("%.80q has a name of a label with more than %d characters", text, maxKey)
	case slices.ContainsFunc(r.Values, func(v string) bool { return strings.ContainsAny(v, ",()\n") }):
		return fmt.Errorf("%.80q %w", text, errExpression)
	}
	return nil
}

// Expression is a requirement as ParseExpression reads it.
func (r Requirement) Expression() string {
	switch {
	case r.Op == Exists:
		return r.Key
	case r.Op == DoesNotExist:
		return "!" + r.Key
	case r.Op == In && len(r.Values) == 1:
		return r.Key + "=" + r.Values[0]
	case r.Op == NotIn && len(r.Values) == 1:
		return r.Key + "!=" + r.Values[0]
	case r.Op == In:
		return r.Key + " in (" + strings.Join(r.Values, ",") + ")"
	}
	return r.Key + " notin (" + strings.Join(r.Values, ",") + ")"
}

// Selects says whether something with these labels is selected, and whether that is known: it may have others, if not
// all are known.
func (s Selector) Selects(have map[string]string, all bool) (selected, known bool) {
	is := s.matches(labels{have: have, all: all})
	return is == yes, is != maybe
}
