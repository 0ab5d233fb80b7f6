package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/tests/lab"
)

// Of thousand: each of replicas containers is behind aliases services, so that each service has ten replicas, and the
// pause of one container, or its end, is a change of as many services.
const (
	thousandServices = 1000
	replicas         = 50
	aliases          = thousandServices * 10 / replicas
	clients          = 20
	many             = "many" // their network
	changesASecond   = 100
	changing         = 20 * time.Second
)

// thousand has the cluster have a thousand services of ten replicas, on one host, and clients on the other one, where the
// agent is watched, and containers are started, without the services, with them, while replicas come and go, and without again.
func (m more) thousand(ctx context.Context) error {
	b := m.b
	if b.kind == "uml" {
		return nil // no nf_tables
	}
	one, two := b.lab.Hosts[0], b.lab.Hosts[1]
	names := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprint("many", i))
		}
		return list
	}
	// A prefix of the usual length has no room for so many addresses.
	if _, err := one.Docker(ctx, "network", "create", "-d", "grapevine", "--ipam-driver", "grapevine", "--ipam-opt", "prefixlen=18", many); err != nil {
		return err
	}
	if err := lab.Eventually(ctx, time.Minute*b.patience, func() error {
		_, err := two.Docker(ctx, "network", "inspect", many)
		return err
	}); err != nil {
		return err
	}
	for i, name := range names(replicas) {
		argv := []string{"run", "-d", "--name", name, "--network", many}
		for a := range aliases {
			argv = append(argv, "--network-alias", fmt.Sprint("s", (i*aliases+a)%thousandServices))
		}
		if _, err := two.Docker(ctx, append(argv, lab.Image, "sleep", "100000")...); err != nil {
			return err
		}
	}
	for _, name := range names(clients) {
		if _, err := one.Docker(ctx, "run", "-d", "--name", name, "--network", many, lab.Image, "sleep", "100000"); err != nil {
			return err
		}
	}
	// Docker pauses containers on the same processors, which costs others time whether there are services or not.
	const came = "without services, while containers are paused and go on"
	if err := m.started(ctx, "without services", 0); err != nil {
		return err
	}
	if err := m.started(ctx, came, changing); err != nil {
		return err
	}
	begin := time.Now()
	if err := eachService(ctx, two, "create", `{"network":"`+many+`","name":"s$i","ports":["80"]}`); err != nil {
		return err
	}
	progress("      %d services made in %.1f s", thousandServices, time.Since(begin).Seconds())
	if err := lab.Eventually(ctx, 2*time.Minute*b.patience, func() error {
		text, err := one.Grapevine(ctx, "service", "list")
		if n := strings.Count(text, "10 of 10"); err == nil && n != thousandServices {
			err = fmt.Errorf("%d services have ten replicas of ten", n)
		}
		return err
	}); err != nil {
		return err
	}
	time.Sleep(5 * time.Second) // what that has begun is done
	if err := m.started(ctx, "with a thousand", 0); err != nil {
		return err
	}
	if err := m.started(ctx, "while they change", changing); err != nil {
		return err
	}
	if err := eachService(ctx, two, "remove", `{"name":"`+many+`/s$i"}`); err != nil {
		return err
	}
	time.Sleep(5 * time.Second)
	if err := m.started(ctx, "without again", 0); err != nil {
		return err
	}
	if err := m.started(ctx, came+", again", changing); err != nil {
		return err
	}
	for h, n := range map[*lab.Host]int{one: clients, two: replicas} {
		if _, err := h.Docker(ctx, append([]string{"rm", "-f"}, names(n)...)...); err != nil {
			return err
		}
	}
	return nil
}

// eachService asks a host's agent, by one connection and not by a program each, for something of each service: $i in body is
// its number.
func eachService(ctx context.Context, h *lab.Host, what, body string) error {
	const ask = `use Socket; $| = 1; my ($path, $body, $n) = @ARGV;
		socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, sockaddr_un("/run/grapevine/grapevine.sock")) or die "connect: $!";
		select((select(S), $| = 1)[0]); $SIG{PIPE} = sub { die "the agent went away" };
		for my $i (0 .. $n - 1) {
			(my $b = $body) =~ s/\$i/$i/g;
			print S "POST $path HTTP/1.1\r\nHost: grapevine\r\nContent-Type: application/json\r\nContent-Length: " . length($b) . "\r\n\r\n$b";
			my ($status, $length) = scalar <S>;
			while (defined(my $l = <S>)) { last if $l =~ /^\r?\n$/; $length = $1 if $l =~ /^content-length: *(\d+)/i }
			read S, my $said, $length // 0;
			$status =~ / 200 / or die "$i: $status$said";
		}`
	_, err := h.Exec(ctx, "perl", "-e", ask, "/v1/services/"+what, body, fmt.Sprint(thousandServices))
	return err
}

// started says what the first host's agent uses, at rest or while replicas change for so long, and how long docker run takes
// there in that time.
func (m more) started(ctx context.Context, what string, change time.Duration) error {
	b := m.b
	one, two := b.lab.Hosts[0], b.lab.Hosts[1]
	var changes sync.WaitGroup
	var failed error
	during, done := change, 0
	if change == 0 {
		during = 15 * time.Second
	}
	end := time.Now().Add(during)
	if change > 0 {
		changes.Go(func() {
			for ; time.Now().Before(end) && failed == nil; done++ {
				next := time.Now().Add(time.Second * aliases / changesASecond)
				verb := []string{"pause", "unpause"}[done%2]
				_, failed = two.Docker(ctx, verb, fmt.Sprint("many", done/2%replicas))
				time.Sleep(time.Until(next))
			}
		})
	}
	before, err := useOf(ctx, one, "grapevine")
	if err != nil {
		return err
	}
	begin := time.Now()
	time.Sleep(during / 2)
	after, err := useOf(ctx, one, "grapevine")
	if err != nil {
		return err
	}
	share := 100 * (after.seconds - before.seconds) / time.Since(begin).Seconds()
	var took []float64
	for range b.runs {
		begin := time.Now()
		if _, err := one.Docker(ctx, "run", "-d", "--name", "timed", "--network", many, lab.Image, "sleep", "1000"); err != nil {
			return err
		}
		took = append(took, time.Since(begin).Seconds())
		if _, err := one.Docker(ctx, "rm", "-f", "timed"); err != nil {
			return err
		}
	}
	changes.Wait()
	slices.Sort(took)
	progress("      %s: the agent takes %.1f%% of a processor, %.0f MB; docker run -d %.2f s (%.2f to %.2f, %d times); %d changes of %d services each",
		what, share, after.megabytes, median(took), took[0], took[len(took)-1], len(took), done, aliases)
	return failed
}
