package k8s

import (
	"strings"

	"github.com/grapevine-net/grapevine/policy"
)

// ours is how annotations begin that are grapevine's; others mean nothing to anybody here.
const ours = "grapevine.io/"

// LogAnnotation says which of a policy's verdicts are logged: denied, or all.
const LogAnnotation = ours + "log"

var logs = map[string]policy.Log{"denied": policy.LogDenied, "all": policy.LogAll}

func logText(l policy.Log) string {
	for text, is := range logs {
		if is == l {
			return text
		}
	}
	return ""
}

// ModeAnnotation says whether a policy is enforced, as it is without it, or only tried.
const ModeAnnotation = ours + "mode"

const enforce, try = "enforce", "try"

func annotationsOf(p policy.Policy) object {
	o := object{}
	if text := logText(p.Log); text != "" {
		o[LogAnnotation] = text
	}
	if p.Try {
		o[ModeAnnotation] = try
	}
	return o
}

// annotations reads from a policy's metadata which of its verdicts are logged, and whether it is only tried. Of a stored policy
// what is not understood says nothing: it changes no verdict.
func (r *reader) annotations(metadata at) (l policy.Log, tried bool) {
	if r.err != nil || !metadata.there() {
		return 0, false
	}
	annotations := r.field(metadata, "annotations")
	if !annotations.there() {
		return 0, false
	}
	for _, p := range r.pairs(annotations) {
		switch {
		case p.key == LogAnnotation && r.closed:
			l = logs[p.value.Value]
		case p.key == LogAnnotation:
			l = logs[r.oneOf(p.value, "denied", "all")]
		case p.key == ModeAnnotation && r.closed:
			tried = p.value.Value == try
		case p.key == ModeAnnotation:
			tried = r.oneOf(p.value, enforce, try) == try
		case strings.HasPrefix(p.key, ours) && !r.closed && r.err == nil:
			r.fail(p.value, "the annotation %.80q is none of grapevine's; there are %s and %s", p.key, LogAnnotation, ModeAnnotation)
		}
	}
	return l, tried
}
