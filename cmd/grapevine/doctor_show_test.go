package main

import (
	"strings"
	"testing"

	"github.com/grapevine-net/grapevine/api"
)

func TestDiagnosisIsShown(t *testing.T) {
	d := api.Diagnosis{Agent: true, Checks: []api.Check{
		{Subject: "encap", Verdict: api.Wrong, Code: api.EncapLost, What: "host1 -> host2: nothing arrives", Do: "let it pass"},
		{Subject: "kernel", Verdict: api.OK, What: "userspace datapath", Do: "load openvswitch"},
		{Subject: "names", Verdict: api.OK, What: "answered"},
	}}
	var b strings.Builder
	if err := showDiagnosis(&b, d); err != nil {
		t.Fatal(err)
	}
	want := `Not well: 1 of 3 checks.
WRONG    encap      host1 -> host2: nothing arrives [encap-lost]; to do: let it pass
ok       kernel     userspace datapath
ok       names      answered

Well as it is, and could be better:
  - kernel: load openvswitch
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
	on := screen{columns: 40, rows: 24}
	if got, want := on.hang("WRONG    encap      host1 -> host2: nothing arrives", doctorIndent), "WRONG    encap      host1 -> host2:\n                    nothing arrives"; got != want {
		t.Errorf("%q", got)
	}
}
