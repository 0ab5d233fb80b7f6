package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMain is the program itself in a process that a test starts as another user.
func TestMain(m *testing.M) {
	if os.Getenv("GRAPEVINE_TEST_MAIN") != "" {
		os.Unsetenv("GRAPEVINE_TEST_MAIN") // no setting
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// An ordinary user's doctor takes nothing for broken that it only may not see: one line, and the
// exit status that says that nobody was asked.
func TestDoctorOfAnOrdinaryUser(t *testing.T) {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "doctor")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "grapevine")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "doctor", "--run="+dir)
	cmd.Dir, cmd.Env = dir, []string{"GRAPEVINE_TEST_MAIN=1", "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 2 || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "sudo grapevine doctor") {
		t.Errorf("exit status %d:\n%s", cmd.ProcessState.ExitCode(), out)
	}
}
