package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/grapevine-net/grapevine/tests/belongings"
	"github.com/grapevine-net/grapevine/tests/chaos/verdict"
	"github.com/grapevine-net/grapevine/tests/lab"
)

// networks are always there, with a witness of each on every host.
var networks = []string{"blue", "red"}

// settings of a run.
type settings struct {
	seed   uint64
	hosts  int
	kind   lab.Kind
	during time.Duration // of the faults; 0: rounds says it
	rounds int
	churn  int           // so many networks and containers come and go on each host at the end
	within time.Duration // all hosts agree so long after the last fault
	bear   int           // so many datagrams lost one after the other are no violation: a busy machine's own
	only   []string      // no other faults strike; none: all do
	env    []string      // settings of all agents
	logs   string        // where logs of hosts that do not agree are copied to, if anywhere
	out    io.Writer
}

// run is a chaos run. The main goroutine owns all of it but what mu guards, which the
// watcher and the commands of a round write.
type run struct {
	settings
	interrupted func() bool // what goes wrong from then on says nothing
	lab         *lab.Lab
	begin       time.Time
	patience    func() time.Duration // everything may take so many times as long now
	struck      time.Time            // the first fault
	removed     time.Time            // the witnesses
	before      map[string]verdict.Belongings

	reading  sync.Mutex // guards the next
	readings int
	entries  int // of the hosts' logs about leases

	mu        sync.Mutex
	wrong     []string
	done      []verdict.Command
	faults    []verdict.Fault
	witnesses map[string]lab.WitnessAt // by NETWORK/HOST
	casts     int                      // how often multicast was tried
}

// chaos runs it, and returns what it found to be wrong; an error is of the harness.
func chaos(ctx context.Context, s settings) (wrong []string, err error) {
	if len(s.table()) == 0 {
		return nil, fmt.Errorf("none of %v can strike such hosts: docs/measurements/chaos.md says what can", s.only)
	}
	r := &run{settings: s, interrupted: func() bool { return ctx.Err() != nil }, begin: time.Now(), witnesses: map[string]lab.WitnessAt{}}
	opts := lab.Options{Hosts: s.hosts, Kind: s.kind, AgentEnv: append([]string{"GRAPEVINE_LOG_LEVEL=debug"}, s.env...)}
	r.patience = opts.Patience
	if r.lab, err = lab.New(ctx, opts); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.lab.Close()) }()
	if err := r.prepare(ctx); err != nil {
		return nil, fmt.Errorf("before any fault: %w", err)
	}
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { r.watch(watching) })
	p := newPlanner(s.seed, s.hosts, s.table())
	r.struck = time.Now()
	for n := 1; !r.interrupted() && !r.failed(); n++ {
		if s.during == 0 && n > s.rounds || s.during > 0 && time.Since(r.struck) > s.during {
			break
		}
		r.round(ctx, n, p.next())
	}
	if !r.interrupted() {
		r.cleanUp(ctx, p.rest())
		r.churn(ctx, s.churn)
	}
	stop()
	watch.Wait()
	r.audit()
	r.summary(time.Since(r.struck))
	if r.interrupted() {
		return r.wrong, errors.New("interrupted: what there was until then is above")
	}
	return r.wrong, nil
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.out, "[%5.1f s] %s\n", time.Since(r.begin).Seconds(), fmt.Sprintf(format, args...))
}

func (r *run) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.wrong) > 0
}

const mostLines = 12

// violated notes what is wrong, once.
func (r *run) violated(where string, wrong ...string) {
	if r.interrupted() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, w := range wrong {
		if slices.Contains(r.wrong, w) {
			continue
		}
		if i == mostLines { // one cause, mostly
			r.say("VIOLATION %s: ... and %d more", where, len(wrong)-i)
			break
		}
		r.wrong = append(r.wrong, w)
		r.say("VIOLATION %s: %s", where, w)
	}
}

// prepare starts the agents, the networks that are always there and their witnesses.
func (r *run) prepare(ctx context.Context) error {
	if err := r.lab.StartAgents(ctx); err != nil {
		return err
	}
	if err := r.settle(ctx, r.patience()*time.Minute, r.disagreements); err != nil {
		return err
	}
	var err error
	if r.before, err = r.belongings(ctx); err != nil {
		return err
	}
	for i, network := range networks {
		if _, err := r.lab.Hosts[i%r.hosts].Docker(ctx, networkCreate(network)...); err != nil {
			return err
		}
	}
	if err := r.lab.Each(func(h *lab.Host) error {
		for _, network := range networks {
			if err := lab.Eventually(ctx, r.patience()*time.Minute, func() error {
				_, err := h.Docker(ctx, "network", "inspect", network)
				return err
			}); err != nil {
				return err
			}
			if _, err := h.Docker(ctx, "run", "-d", "--restart", "always", "--name", network, "--network", network, lab.Image); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, h := range r.lab.Hosts {
		if err := r.witness(ctx, h); err != nil {
			return err
		}
	}
	if err := r.settle(ctx, r.patience()*time.Minute, r.allMet); err != nil {
		return err
	}
	if r.asks() {
		if err := (asking{r}).ask(ctx); err != nil {
			return err
		}
	}
	if forbids(r.asks(), r.seed) {
		if err := forbid(ctx, r); err != nil {
			return err
		}
		r.say("the networks are joined, and policies keep them apart")
	}
	r.say("%d hosts, %d networks, %d witnesses; seed %d", r.hosts, len(networks), len(r.witnesses), r.seed)
	return r.settle(ctx, r.patience()*time.Minute, r.disagreements)
}

func networkCreate(name string) []string {
	return slices.Concat([]string{"network", "create", "-d", "grapevine", "--ipam-driver", "grapevine"}, options[name], []string{name})
}

// witness starts the host's witnesses, when their containers run, and tells all others
// where they are: Docker asks for another address when a container starts again.
func (r *run) witness(ctx context.Context, h *lab.Host) error {
	at := map[string]lab.WitnessAt{}
	for _, network := range networks {
		if err := lab.Eventually(ctx, r.patience()*30*time.Second, func() error {
			c, err := h.Container(ctx, network)
			if err != nil {
				return err
			}
			addrs := c.AllAddrs()
			if len(addrs) == 0 {
				return fmt.Errorf("%s on %s has no address", network, h.Name)
			}
			at[network+"/"+h.Name] = lab.WitnessAt{Addr: addrs[0].String(), MAC: c.MACs[network], Since: time.Now()}
			return c.Witness(ctx, network, h.Name)
		}); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.Copy(r.witnesses, at)
	return r.lab.SetWitnesses(r.witnesses)
}

// allMet is nil if every witness has had an answer from all others of its network, and a
// connection to them, since both were started.
func (r *run) allMet(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return verdict.Met(r.sightings(), r.witnesses)
}

// watch reads all hosts again and again: nothing ever has two owners.
func (r *run) watch(ctx context.Context) {
	for ctx.Err() == nil {
		_, _ = r.readAll(ctx) // a host that does not answer is what it was
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
}

// readAll reads all hosts, and returns those that answer. What seems to have two owners may
// have been given away since the first of them was read: it has two if it still has when
// they are read again at once.
func (r *run) readAll(ctx context.Context) ([]verdict.Facts, error) {
	r.reading.Lock()
	defer r.reading.Unlock()
	hosts, err := r.readOnce(ctx)
	if doubt := verdict.Owners(hosts); len(doubt) > 0 {
		hosts, err = r.readOnce(ctx)
		r.violated("two owners", verdict.Both(doubt, verdict.Owners(hosts))...)
	}
	return hosts, err
}

// readOnce is called with reading held. A host that does not answer may have given away
// since what it last said is its own.
func (r *run) readOnce(ctx context.Context) (hosts []verdict.Facts, err error) {
	answers := make([]*verdict.Facts, len(r.lab.Hosts))
	err = r.lab.Each(func(h *lab.Host) error {
		ctx, cancel := context.WithTimeout(ctx, r.patience()*5*time.Second)
		defer cancel()
		f, err := read(ctx, h)
		if err == nil {
			answers[slices.Index(r.lab.Hosts, h)] = &f
		}
		return err
	})
	for _, f := range answers {
		if f != nil {
			hosts = append(hosts, *f)
		}
	}
	r.readings++
	return hosts, err
}

// disagreements is nil if all hosts answer and agree.
func (r *run) disagreements(ctx context.Context) error {
	hosts, err := r.readAll(ctx)
	if err != nil {
		return err
	}
	if wrong := verdict.Agree(hosts); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

// settle waits until a check says nothing.
func (r *run) settle(ctx context.Context, within time.Duration, check func(context.Context) error) error {
	return lab.Eventually(ctx, within, func() error { return check(ctx) })
}

// round does what was planned, and checks that all is well afterwards.
func (r *run) round(ctx context.Context, n int, plan round) {
	var text []string
	for _, s := range plan.faults {
		text = append(text, s.String())
	}
	r.say("round %d: %s; %d commands", n, strings.Join(text, ", "), len(plan.commands))
	r.mu.Lock()
	first := len(r.faults)
	r.mu.Unlock()
	var commands, faults sync.WaitGroup
	for h := range r.hosts { // those of one host one by one: one may undo what another did
		commands.Go(func() {
			for _, c := range plan.commands {
				if c.host == h {
					r.command(ctx, c)
				}
			}
		})
	}
	end := time.Now().Add(plan.lasts())
	for _, s := range plan.faults {
		faults.Go(func() {
			pause(ctx, s.after)
			undo := r.strike(ctx, s)
			pause(ctx, time.Until(end))
			if err := undo(); err != nil {
				r.violated(fmt.Sprint("round ", n), "a fault's end: "+err.Error())
			}
		})
	}
	faults.Wait()
	over, within := time.Now(), r.within*r.patience()
	commands.Wait()
	ended := time.Since(over)
	var last error // that all but the last reading found
	if err := r.settle(ctx, max(time.Second, within-time.Since(over)), func(ctx context.Context) error {
		err := r.disagreements(ctx)
		if err != nil {
			last = err
		}
		return err
	}); err != nil {
		r.violated(fmt.Sprint("round ", n), "the hosts do not agree: "+err.Error())
		r.quoteLogs(ctx, err.Error())
	}
	agreed := time.Since(over)
	if agreed > slow && last != nil {
		r.say("         what the hosts last disagreed in: %v", last)
		r.quoteLogs(ctx, last.Error())
	}
	if err := r.reach(ctx, max(time.Second, within-time.Since(over))); err != nil {
		r.violated(fmt.Sprint("round ", n), err.Error())
	}
	if err := r.settle(ctx, max(time.Second, within-time.Since(over)), r.allMet); err != nil {
		r.violated(fmt.Sprint("round ", n), err.Error())
	}
	if r.asks() {
		if err := r.settle(ctx, max(time.Second, within-time.Since(over)), (asking{r}).asked); err != nil {
			r.violated(fmt.Sprint("round ", n), err.Error())
		}
	}
	r.say("         after the last fault commands ended in %.1f s, hosts agreed in %.1f s, all was reachable in %.1f s",
		ended.Seconds(), agreed.Seconds(), time.Since(over).Seconds())
	r.mu.Lock()
	for i := range r.faults[first:] {
		r.faults[first+i].Until = time.Now() // from here on they excuse nothing
	}
	r.mu.Unlock()
	pause(ctx, quiet)
	r.judge(n)
	if r.asks() {
		r.violated(fmt.Sprint("round ", n), (asking{r}).never(ctx)...)
	}
}

// slow is after how long it is told what the hosts last disagreed in.
const slow = 6 * time.Second

// quiet is how long nothing is done between rounds, and no fault excuses anything.
const quiet = 2 * time.Second

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// quoteLogs prints the ends of the logs of hosts that a text names, and their containers, and
// copies the logs.
func (r *run) quoteLogs(ctx context.Context, text string) {
	for _, h := range r.lab.Hosts {
		if !strings.Contains(text, h.Name+":") {
			continue
		}
		fmt.Fprintf(r.out, "%s's agent:\n%s\n%s's dockerd:\n%s\n", h.Name, h.Log("agent", logLines), h.Name, h.Log("dockerd", logLines))
		list, err := h.Docker(ctx, "ps", "-a", "--format", "{{.Names}}: {{.Status}}, {{.Networks}}")
		fmt.Fprintf(r.out, "%s's containers:\n%s%v\n", h.Name, list, err)
		if r.logs == "" {
			continue
		}
		for _, daemon := range []string{"agent", "dockerd"} {
			log, err := h.WholeLog(daemon)
			if err == nil {
				err = os.WriteFile(filepath.Join(r.logs, h.Name+"-"+daemon+".log"), []byte(log), 0o600)
			}
			if err != nil {
				fmt.Fprintf(r.out, "copy the log of %s's %s: %v\n", h.Name, daemon, err)
			}
		}
	}
}

// logLines is how much of a log is quoted.
const logLines = 15

func (s strike) String() string {
	text := s.fault
	for _, h := range s.on {
		text += fmt.Sprint(" host", h+1)
	}
	return text
}

// strike does a fault and returns what ends it.
func (r *run) strike(ctx context.Context, s strike) (undo func() error) {
	f := find(s.fault)
	note := verdict.Fault{Name: s.String(), Between: f.hosts == 2, Packets: f.packets, Commands: f.commands, From: time.Now()}
	var on []*lab.Host
	for _, h := range s.on {
		on = append(on, r.lab.Hosts[h])
		note.Hosts = append(note.Hosts, r.lab.Hosts[h].Name)
	}
	r.mu.Lock()
	r.faults = append(r.faults, note)
	r.mu.Unlock()
	err := f.do(ctx, r.lab, on)
	return func() error {
		err := errors.Join(err, f.undo(ctx, r.lab, on))
		if err == nil && s.fault == "power-lost" {
			err = r.witness(ctx, on[0])
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", s, err)
		}
		return err
	}
}

// command runs one, and notes what became of it.
func (r *run) command(ctx context.Context, c command) {
	h := r.lab.Hosts[c.host]
	for _, argv := range c.argv() {
		ctx, cancel := context.WithTimeout(ctx, r.patience()*time.Minute)
		done := verdict.Command{Host: h.Name, Text: "docker " + strings.Join(argv, " "), From: time.Now()}
		if _, done.Err = h.Docker(ctx, argv...); done.Err != nil && argv[0] != "run" && absent.MatchString(done.Err.Error()) {
			done.Err = nil // it was never made, and that has been judged
		}
		done.Until = time.Now()
		cancel()
		r.mu.Lock()
		r.done = append(r.done, done)
		r.mu.Unlock()
	}
}

// absent matches what Docker's command line says of what is not there: versions differ.
var absent = regexp.MustCompile(`No such |network \S+ not found`)

func (c command) argv() [][]string {
	start := []string{"run", "-d", "--name", c.name, "-h", c.name, "--label", guestLabel, "--network", c.network, lab.Image}
	remove := []string{"rm", "-f", c.name}
	return map[string][][]string{
		"run":        {start},
		"rm":         {remove},
		"network":    {networkCreate(c.network), start},
		"network-rm": {remove, {"network", "rm", c.network}},
	}[c.verb]
}

// reach has a container of each host and network ping all others of the network.
func (r *run) reach(ctx context.Context, within time.Duration) error {
	hosts, err := r.readAll(ctx)
	if err != nil {
		return err
	}
	var g errgroup.Group
	for _, h := range r.lab.Hosts {
		for _, network := range networks {
			g.Go(func() error {
				from, err := h.Container(ctx, network)
				if err != nil {
					return err
				}
				own, strange := from.Addrs[network][:0:0], from.Addrs[network][:0:0]
				for _, other := range hosts {
					for _, c := range other.Containers {
						if c.Network == network {
							own = append(own, c.Addr)
						} else {
							strange = append(strange, c.Addr)
						}
					}
				}
				if err := from.Reach(ctx, within, own...); err != nil {
					return err
				}
				return from.Silent(ctx, time.Second, strange...)
			})
		}
	}
	return g.Wait()
}

func (r *run) bearable(s lab.Sighting) bool { return s.Kind == "lost" && s.N <= r.bear }

// sightings are those of all witnesses.
func (r *run) sightings() (seen []lab.Sighting) {
	for _, h := range r.lab.Hosts {
		for _, network := range networks {
			list, err := r.lab.Sightings(h, network)
			if err != nil {
				list = []lab.Sighting{{Kind: "reset", By: network + "/" + h.Name, To: "?/?", Until: time.Now(), Why: err.Error()}}
			}
			seen = append(seen, list...)
		}
	}
	return seen
}

// judge looks at what the witnesses saw and at the commands, so far.
func (r *run) judge(n int) {
	where := func(witness string) string { return witness[strings.Index(witness, "/")+1:] }
	r.mu.Lock()
	wrong := append(verdict.Packets(slices.DeleteFunc(r.sightings(), r.bearable), r.faults, where), verdict.Commands(r.done, r.faults)...)
	r.mu.Unlock()
	r.violated(fmt.Sprint("round ", n), wrong...)
}

// cleanUp removes all that there is, and looks for what is left.
func (r *run) cleanUp(ctx context.Context, rest []command) {
	time.Sleep(lab.WitnessLate) // what is on its way is not lost
	r.removed = time.Now()
	if err := r.lab.SetWitnesses(nil); err != nil {
		r.violated("at the end", err.Error())
	}
	time.Sleep(lab.WitnessLate) // they tell of what they have lost until now
	r.judge(0)
	for _, h := range r.lab.Hosts {
		for _, network := range networks {
			if err := lab.StopWitness(ctx, h, network); err != nil {
				r.violated("at the end", err.Error())
			}
		}
	}
	for _, c := range rest {
		r.command(ctx, c)
	}
	r.again(ctx)
	if r.asks() {
		r.violated("at the end", (asking{r}).never(ctx)...)
		if err := (asking{r}).unask(ctx); err != nil {
			r.violated("at the end", err.Error())
		}
	}
	if forbids(r.asks(), r.seed) {
		if err := allow(ctx, r); err != nil {
			r.violated("at the end", err.Error())
		}
	}
	if err := r.lab.Each(func(h *lab.Host) error {
		_, err := h.Docker(ctx, append([]string{"rm", "-f"}, networks...)...)
		return err
	}); err != nil {
		r.violated("at the end", err.Error())
	}
	if _, err := r.lab.Hosts[0].Docker(ctx, append([]string{"network", "rm"}, networks...)...); err != nil {
		r.violated("at the end", err.Error())
	}
	r.nothingLeft(ctx, "at the end", r.before)
}

// nothingLeft waits until no host has more than before.
func (r *run) nothingLeft(ctx context.Context, where string, before map[string]verdict.Belongings) {
	var left []string
	err := lab.Eventually(ctx, r.patience()*75*time.Second, func() error {
		left = nil
		all, err := r.belongings(ctx)
		for host, b := range all {
			left = append(left, verdict.Left(host, before[host], b)...)
		}
		if len(left) > 0 {
			return errors.New("something is left")
		}
		return err
	})
	if err != nil && len(left) == 0 {
		left = []string{err.Error()}
	}
	if err != nil {
		slices.Sort(left)
		r.violated(where, left...)
	}
}

// belongings are those of each host, by its name.
func (r *run) belongings(ctx context.Context) (map[string]verdict.Belongings, error) {
	var mu sync.Mutex
	all := map[string]verdict.Belongings{}
	return all, r.lab.Each(func(h *lab.Host) error {
		b, err := belongings.Of(ctx, h)
		mu.Lock()
		defer mu.Unlock()
		all[h.Name] = b
		return err
	})
}

// churn has networks and containers come and go on all hosts, with no fault and so no
// start of anything: what is left behind each time adds up.
func (r *run) churn(ctx context.Context, times int) {
	before, err := r.belongings(ctx)
	if err == nil {
		err = r.lab.Each(func(h *lab.Host) error {
			for range times {
				name := "churn-" + h.Name
				for _, argv := range [][]string{networkCreate(name), {"run", "-d", "--name", name, "--network", name, lab.Image}, {"rm", "-f", name}, {"network", "rm", name}} {
					if _, err := h.Docker(ctx, argv...); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	if err != nil {
		r.violated("churn", err.Error())
		return
	}
	r.nothingLeft(ctx, "after churn", before)
}

// again removes, as the user would, the containers whose removal met a fault, and then
// such networks: Docker forgets a network even if no agent answers, and it comes back
// from the other hosts.
func (r *run) again(ctx context.Context) {
	for _, kind := range []string{"rm", "network"} {
		for _, c := range r.done {
			argv := strings.Fields(c.Text)
			if argv[1] != kind || kind == "network" && argv[2] != "rm" || !c.Excused(r.faults) {
				continue
			}
			for _, h := range r.lab.Hosts {
				if h.Name == c.Host {
					_, _ = h.Docker(ctx, argv[1:]...) // mostly it is gone
				}
			}
		}
	}
}

// judged says for which part of the time packets between two hosts were judged: the least
// of all pairs, and the mean. It is called with mu held.
func (r *run) judged() string {
	least, sum, pairs := 1.0, 0.0, 0
	for i, a := range r.lab.Hosts {
		for _, b := range r.lab.Hosts[:i] {
			part := verdict.Judged(a.Name, b.Name, r.faults, r.struck, r.removed)
			least, sum, pairs = min(least, part), sum+part, pairs+1
		}
	}
	return fmt.Sprintf("%.0f%% (at least %.0f%%)", 100*sum/float64(max(pairs, 1)), 100*least)
}

// audit looks through what all agents have logged of their leases.
func (r *run) audit() {
	if r.kind != lab.Namespace {
		return // these hosts have clocks of their own, which are set
	}
	var all []verdict.Entry
	for _, h := range r.lab.Hosts {
		log, err := h.WholeLog("agent")
		if err != nil {
			r.violated("leases", err.Error())
		}
		list, err := verdict.Entries(h.Name, log)
		if err == nil && len(list) == 0 {
			err = fmt.Errorf("%s's log says nothing of leases", h.Name)
		}
		if err != nil {
			r.violated("leases", err.Error())
		}
		all = append(all, list...)
	}
	r.entries = len(all)
	r.violated("two owners", verdict.Ledger(all)...)
}

func (r *run) summary(during time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := map[string]int{}
	for _, f := range r.faults {
		count[strings.Fields(f.Name)[0]]++
	}
	failed := 0
	for _, c := range r.done {
		if c.Err != nil {
			fmt.Fprintf(r.out, "on a host with a fault: %s# %s: %v\n", c.Host, c.Text, c.Err)
			failed++
		}
	}
	fmt.Fprintf(r.out, "\nseed %d, %s on %d hosts: %d faults\n", r.seed, during.Round(time.Second), r.hosts, len(r.faults))
	for _, name := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(r.out, "  %3d %s\n", count[name], name)
	}
	fmt.Fprintf(r.out, "%d commands (%d failed, on hosts with a fault)\n", len(r.done), failed)
	fmt.Fprintf(r.out, "all hosts read %d times, and %d lines of their logs about leases\n", r.readings, r.entries)
	fmt.Fprintf(r.out, "no fault excused packets between two hosts for %s of the time\n", r.judged())
	fmt.Fprintf(r.out, "%d violations\n", len(r.wrong))
}
