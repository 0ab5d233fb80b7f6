package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// watchProcessors looks how busy the machine's processors are, whoever keeps them so, until what it returns is called,
// which says it in a line: a number in percent for each so long time. Where tests end later than they could, it shows when the
// processors waited.
func watchProcessors(ctx context.Context, each time.Duration) (said func() string) {
	ctx, stop := context.WithCancel(ctx)
	var percent []string
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(each)
		defer tick.Stop()
		before := readBusy()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			now := readBusy()
			if all := now.all - before.all; all > 0 {
				percent = append(percent, fmt.Sprint(100*(now.busy-before.busy)/all))
			}
			before = now
		}
	})
	return func() string {
		stop()
		watching.Wait()
		if len(percent) == 0 {
			return ""
		}
		return fmt.Sprintf("busy    %s %% of the processors, each %s\n", strings.Join(percent, " "), each)
	}
}

// ticks are what the processors have had since the machine's boot, and in which of it they did something.
type ticks struct{ all, busy uint64 }

// readBusy reads /proc/stat (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal.
func readBusy() (t ticks) {
	text, _ := os.ReadFile("/proc/stat")
	return busyOf(string(text))
}

func busyOf(stat string) (t ticks) {
	line, _, _ := strings.Cut(stat, "\n")
	var n [8]uint64
	var name string
	if got, _ := fmt.Sscan(line, &name, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7]); got != 1+len(n) {
		return ticks{}
	}
	for i, v := range n {
		t.all += v
		if i != 3 && i != 4 {
			t.busy += v
		}
	}
	return t
}
