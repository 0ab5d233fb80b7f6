package trim

import (
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// TestReadOnly: what is not the program's file, or may have been written to, is left alone.
func TestReadOnly(t *testing.T) {
	const program = "/usr/bin/with a space (deleted)"
	maps := `00400000-012bd000 r-xp 00000000 fe:00 123 ` + program + `
012bd000-02125000 r--p 00ebd000 fe:00 123                        ` + program + `
02125000-021c2000 rw-p 01d25000 fe:00 123                        ` + program + `
021c2000-04209000 rw-p 00000000 00:00 0
7f0000000000-7f0000001000 r--s 00000000 fe:00 123                ` + program + `
7f0000002000-7f0000003000 r--p 00000000 fe:00 124                /lib/other
7fff00000000-7fff00002000 r-xp 00000000 00:00 0                  [vdso]
`
	want := []mapping{{0x400000, 0x12bd000}, {0x12bd000, 0x2125000}}
	if got := readOnly([]byte(maps), program); !reflect.DeepEqual(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// TestTrim: a program is as it was when it has given its pages back, and has fewer.
func TestTrim(t *testing.T) {
	before := mapped(t)
	if err := trim(); err != nil {
		t.Fatal(err)
	}
	if after := mapped(t); after >= before {
		t.Errorf("%d kB of files are mapped, before %d", after, before)
	} else {
		t.Logf("%d kB of files are mapped, before %d", after, before)
	}
}

// mapped is how much of the program's file this process has mapped. RssFile in status is a sum of what each processor has counted
// for itself, and may be off by megabytes; this is read from the page tables.
func mapped(t *testing.T) (kB int) {
	t.Helper()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	ours := false
	for line := range strings.Lines(string(maps)) {
		switch f := strings.Fields(line); {
		case strings.Contains(f[0], "-") && !strings.HasSuffix(f[0], ":"):
			ours = strings.HasSuffix(strings.TrimSpace(line), program)
		case ours && f[0] == "Rss:":
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			kB += n
		}
	}
	return kB
}
