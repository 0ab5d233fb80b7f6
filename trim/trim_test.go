package trim

import (
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

// TestTrim: a program is as it was when it has given its pages back, and has fewer; where the kernel can map them singly, far fewer.
func TestTrim(t *testing.T) {
	before := mapped(t)
	held := trim(-1)
	after := mapped(t)
	t.Logf("%d kB of files are mapped, before %d; singly: %v", after, before, held >= 0)
	if after >= before {
		t.Errorf("%d kB of files are mapped, before %d", after, before)
	}
	if held < 0 {
		t.Skip("this kernel maps pages in pieces of 64 KB")
	}
	defer func() { _ = unix.Close(held) }()
	// A page that is read brings no other one. What else this process does maps pages as well, but not all of them.
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	sink, err := unix.MemfdCreate("sink", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(sink) }()
	touched := 0
	for _, m := range readOnly(maps, program) {
		for at := m.start; at < m.end; at += 16 * 4096 {
			if _, _, e := unix.Syscall(unix.SYS_WRITE, uintptr(sink), at, 1); e != 0 {
				t.Fatal(e)
			}
			touched += 4
		}
	}
	all := mapped(t)
	t.Logf("%d kB after %d kB were read, one page of sixteen", all, touched)
	if all > after+10*touched {
		t.Errorf("%d kB are mapped after %d kB were read", all, touched)
	}
	if again := trim(held); again != held {
		t.Errorf("the second time it holds %d, before %d", again, held)
	}
}

// TestPercent: who has little in use lets some megabytes of garbage come together, who has much no more than ever.
func TestPercent(t *testing.T) {
	for used, want := range map[uint64]int{0: 200, 2 << 20: 200, 4 << 20: 125, 10 << 20: 50, 100 << 20: 50} {
		if got := percent(used, 50); got != want {
			t.Errorf("%d bytes in use: %d%%, want %d%%", used, got, want)
		}
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
