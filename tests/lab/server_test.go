package lab

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestHowADaemonEnded: whoever asks for one that does not run is told how it ended.
func TestHowADaemonEnded(t *testing.T) {
	s := &server{daemons: map[string]*daemon{}}
	if err := s.start(request{Name: "kernel", Argv: []string{"sh", "-c", "kill -SEGV $$"}, Log: filepath.Join(t.TempDir(), "log")}); err != nil {
		t.Fatal(err)
	}
	running, end, err := s.signal(request{Name: "kernel", Wait: time.Minute})
	if err != nil || running || !strings.HasPrefix(end, "signal: segmentation fault") {
		t.Errorf("it runs: %v, ended: %q, %v", running, end, err)
	}
}
