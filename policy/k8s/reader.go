package k8s

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The bounds of a text. Those of a policy itself are MaxPolicy and, where the API has them, the API's.
const (
	MaxText      = 1 << 20
	maxDocuments = 1000
	maxDepth     = 32
	maxNodes     = 200_000 // keys and values, those that aliases repeat each time
	maxRanges    = 4096    // of addresses that the blocks of a policy come to, less their exceptions
	maxItems     = 4096    // of a list or mapping for which the API says no bound
)

// at is a value and the way to it.
type at struct {
	*yaml.Node
	path  string
	depth int
}

// there says whether the value was written, and is not null.
func (v at) there() bool { return v.Node != nil && v.ShortTag() != "!!null" }

// reader reads the values of a document. Its first error stays; what is read after it means nothing.
type reader struct {
	document int
	nodes    int
	ranges   int // of addresses, at most, that the policy's blocks come to
	err      error
	closed   bool  // what is not understood fails closed, and
	unread   error // the first of it
}

// fail notes an error about a value.
func (r *reader) fail(v at, format string, args ...any) {
	if r.err != nil {
		return
	}
	if v.path == "" {
		v.path = "the policy"
	}
	r.err = fmt.Errorf("document %d, line %d: %s: %s", r.document, v.Line, v.path, fmt.Sprintf(format, args...))
}

// documents are the documents of a text that are not empty.
func documents(text []byte) (list []*yaml.Node, err error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("the text has %d bytes; split it into texts of at most %d", len(text), MaxText)
	}
	d := yaml.NewDecoder(strings.NewReader(string(text)))
	for n := 1; ; n++ {
		var document yaml.Node
		switch err := d.Decode(&document); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("document %d is no YAML: %.300s", n, strings.ToValidUTF8(strings.TrimPrefix(err.Error(), "yaml: "), "?"))
		case n > maxDocuments:
			return nil, fmt.Errorf("the text has more than %d documents; split it", maxDocuments)
		}
		if len(document.Content) != 1 || document.Content[0].ShortTag() == "!!null" {
			document.Content = nil // only comments
		}
		list = append(list, &document)
	}
}

// value follows an alias, and counts.
func (r *reader) value(n *yaml.Node, path string, depth int) at {
	v := at{n, path, depth}
	if r.nodes++; r.nodes > maxNodes {
		r.fail(v, "the document has more than %d values, those of its aliases among them; write less", maxNodes)
	}
	if depth > maxDepth {
		r.fail(v, "the document is nested more than %d deep", maxDepth)
	}
	if n.Kind == yaml.AliasNode {
		line := n.Line
		target := *n.Alias
		target.Line = line
		v.Node = &target
	}
	return v
}

// fields are the values of a mapping by their names. Others than those allowed are an error.
func (r *reader) fields(v at, allowed ...string) map[string]at {
	fields := map[string]at{}
	for _, p := range r.pairs(v) {
		if !slices.Contains(allowed, p.key) {
			r.fail(p.value, "unknown field; allowed here: %s", strings.Join(allowed, ", "))
			return nil
		}
		fields[p.key] = p.value
	}
	return fields
}

type pair struct {
	key   string
	value at
}

// pairs are the keys and values of a mapping.
func (r *reader) pairs(v at) (list []pair) {
	if r.err != nil || !v.there() {
		return nil
	}
	if v.Kind != yaml.MappingNode || v.ShortTag() != "!!map" {
		r.fail(v, "is %s; must be a mapping (name: value)", what(v))
		return nil
	}
	if len(v.Content)/2 > maxItems {
		r.fail(v, "has %d entries; at most %d are allowed", len(v.Content)/2, maxItems)
		return nil
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(v.Content) && r.err == nil; i += 2 {
		k := r.value(v.Content[i], v.path, v.depth+1)
		if k.ShortTag() == "!!merge" {
			r.fail(k, "<< is not supported; write the fields out")
			return nil
		}
		key := r.text(k)
		value := r.value(v.Content[i+1], joinPath(v.path, key), v.depth+1)
		if seen[key] {
			r.fail(value, "is there twice")
		}
		seen[key] = true
		list = append(list, pair{key, value})
	}
	return list
}

// joinPath adds a field to a path. A key that is no plain word is quoted.
func joinPath(path, key string) string {
	if strings.ContainsFunc(key, func(c rune) bool { return !plain(c) }) || key == "" || len(key) > 80 {
		key = fmt.Sprintf("%.80q", key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func plain(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_/", c)
}

// list are the values of a sequence. None may be null.
func (r *reader) list(v at, most int) (list []at) {
	if r.err != nil || !v.there() {
		return nil
	}
	if v.Kind != yaml.SequenceNode || v.ShortTag() != "!!seq" {
		r.fail(v, "is %s; must be a list", what(v))
		return nil
	}
	if len(v.Content) > most {
		r.fail(v, "has %d items; at most %d are allowed", len(v.Content), most)
		return nil
	}
	for i, n := range v.Content {
		item := r.value(n, fmt.Sprintf("%s[%d]", v.path, i), v.depth+1)
		if !item.there() {
			r.fail(item, "is empty; write an item, {} for one without fields")
			return nil
		}
		list = append(list, item)
	}
	return list
}

// booleans are words that YAML 1.1, which Kubernetes reads, takes for true or false.
var booleans = []string{"y", "n", "yes", "no", "on", "off", "true", "false"}

// text is a string. What Kubernetes would not read as one must be in quotes.
func (r *reader) text(v at) string {
	if r.err != nil || v.Node == nil {
		return ""
	}
	if v.Kind != yaml.ScalarNode {
		r.fail(v, "is %s; must be a text", what(v))
		return ""
	}
	unquoted := v.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0
	if v.ShortTag() != "!!str" || unquoted && slices.Contains(booleans, strings.ToLower(v.Value)) {
		r.fail(v, "%.80q is %s; put it in quotes if it is meant as a text", v.Value, what(v))
		return ""
	}
	for _, c := range v.Value {
		if c < ' ' || c == 0x7f {
			r.fail(v, "%.80q has a control character", v.Value)
			return ""
		}
	}
	return v.Value
}

// number is a whole number.
func (r *reader) number(v at, least, most int) int {
	if r.err != nil || v.Node == nil {
		return 0
	}
	n, err := strconv.Atoi(v.Value)
	if v.Kind != yaml.ScalarNode || v.ShortTag() != "!!int" || err != nil || strconv.Itoa(n) != v.Value || n < least || n > most {
		r.fail(v, "%s is no whole number from %d to %d, without quotes", shown(v), least, most)
		return 0
	}
	return n
}

// oneOf is a text out of a few.
func (r *reader) oneOf(v at, words ...string) string {
	s := r.text(v)
	if r.err == nil && v.Node != nil && !slices.Contains(words, s) {
		r.fail(v, "%.80q is not allowed; must be %s", s, strings.Join(words, ", "))
	}
	return s
}

// shown is a value as an error shows it.
func shown(v at) string {
	if v.Kind == yaml.ScalarNode {
		return fmt.Sprintf("%.80q", v.Value)
	}
	return what(v)
}

// what says what a value is.
func what(v at) string {
	switch v.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch v.ShortTag() {
	case "!!str":
		return "a text"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!null":
		return "empty"
	case "!!timestamp":
		return "a time"
	}
	return fmt.Sprintf("of the kind %.40q", v.Tag)
}
