package policy

import "slices"

// Selector selects by labels: all requirements must be met. An empty one selects everything.
type Selector []Requirement

// Requirement is what a label must be.
type Requirement struct {
	Key    string
	Op     Op
	Values []string // of In and NotIn
}

// Op is how a label is compared.
type Op uint8

// The operators, as Kubernetes defines them: who has no such label meets NotIn.
const (
	In Op = iota + 1
	NotIn
	Exists
	DoesNotExist
)

func (o Op) String() string {
	switch o {
	case In:
		return "In"
	case NotIn:
		return "NotIn"
	case Exists:
		return "Exists"
	case DoesNotExist:
		return "DoesNotExist"
	}
	return "unknown operator"
}

// truth is an answer about something that may not be known.
type truth uint8

const (
	no truth = iota
	maybe
	yes
)

// labels are what is known of something's labels.
type labels struct {
	have    map[string]string
	all     bool   // there are no others
	network string // of a network: its name, which is the label MetadataName as well
}

func (l labels) value(key string) (value string, has bool) {
	if l.network != "" && key == MetadataName {
		return l.network, true
	}
	value, has = l.have[key]
	return value, has
}

// matches says whether labels meet all requirements.
func (s Selector) matches(l labels) truth {
	result := yes
	for i := range s {
		result = min(result, s[i].matches(l))
		if result == no {
			return no
		}
	}
	return result
}

func (r *Requirement) matches(l labels) truth {
	value, has := l.value(r.Key)
	if !has && !l.all {
		return maybe
	}
	met := false
	switch r.Op {
	case In:
		met = has && slices.Contains(r.Values, value)
	case NotIn:
		met = !has || !slices.Contains(r.Values, value)
	case Exists:
		met = has
	case DoesNotExist:
		met = !has
	}
	if met {
		return yes
	}
	return no
}
