// Package pipeline compiles what the cluster knows about one host into OpenFlow
// flows for that host's bridge: Input in, flows out, and the difference between
// two sets of flows.
//
// The package is pure. Flows are text in the one spelling that
// `ovs-ofctl -O OpenFlow14 --no-names dump-flows` prints, so that what the
// switch has and what it should have are compared as strings.
//
// A packet visits the stages of layout.go in order. Every stage ends in a flow
// that says what happens to the rest: go on, or drop. Drops are flows of their
// own, so that the switch counts them by reason; nothing is ever flooded.
//
// docs/design/pipeline.md is generated from this package (Markdown).
package pipeline

//go:generate go test -run TestDocIsCurrent -update .
