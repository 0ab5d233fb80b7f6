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

// logged reads from a policy's metadata which of its verdicts are logged. Of a stored policy what is not understood is
// not logged: it changes no verdict.
func (r *reader) logged(metadata at) (l policy.Log) {
	if r.err != nil || !metadata.there() {
		return 0
	}
	annotations := r.field(metadata, "annotations")
	if !annotations.there() {
		return 0
	}
	for _, p := range r.pairs(annotations) {
		switch {
		case p.key == LogAnnotation && r.closed:
			l = logs[p.value.Value]
		case p.key == LogAnnotation:
			l = logs[r.oneOf(p.value, "denied", "all")]
		case strings.HasPrefix(p.key, ours) && !r.closed && r.err == nil:
			r.fail(p.value, "the annotation %.80q is none of grapevine's; there is %s", p.key, LogAnnotation)
		}
	}
	return l
}
