package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/config"
)

// traced is what keeps a connection from passing, as far as it was looked at.
type traced struct {
	api.Explanation
	// Ping is a packet from this host to that of the other end and back, through the tunnel.
	Ping *api.Ping `json:"ping,omitempty"`
	// Again are more of them, if one was lost: chance loses one and not the other, what is too large never passes.
	Again []api.Ping `json:"again,omitempty"`
	// Led says what leads the connection elsewhere, and Ways are the traces to where it is led.
	Led  *api.Lead `json:"led,omitempty"`
	Ways []traced  `json:"ways,omitempty"`
	// Paused are those of the two ends that are paused.
	Paused []string `json:"paused,omitempty"`
	// Over6 is the same over IPv6, if both ends have that besides IPv4 and were named by name: programs take it first.
	Over6 *traced `json:"over6,omitempty"`
	// Would is what the switches and fast paths would do with a packet, there and back.
	Would *api.Trace `json:"would,omitempty"`
	// Verdict is the first line; Wrong says that it names something in the way, and Do what to do.
	Verdict string `json:"verdict"`
	Wrong   bool   `json:"wrong"`
	// Unknown says that nothing was found in the way, and that a real packet could not be sent.
	Unknown bool   `json:"unknown,omitempty"`
	Do      string `json:"do,omitempty"`
	// NotTried is what was not looked at.
	NotTried []string `json:"notTried"`
}

func newTrace() *cobra.Command {
	var flows, dry bool
	c := &cobra.Command{
		Use:   "trace FROM TO[:PORT[/PROTOCOL]]",
		Short: "Say what is in the way between two containers: networks, policies, hosts, switches, the tunnel",
		Long: `Say what is in the way from FROM to TO and back, and what to do. It looks at what ought to be, which the
whole cluster knows (networks, policies, whether the hosts answer, who is behind a service). It asks the switch and the fast path of each
host on the way what they would do with the packet, and with the answer to it. And it sends a real one from within
the container FROM, as a program there would, and looks where it comes by: at both containers' interfaces, and where
VXLAN leaves one host and enters the other. FROM and TO are as for grapevine policy explain; one of them may be an
address outside.

Between two names whose containers have IPv4 and IPv6 it tries both, as programs take IPv6 first.

TO may be a service, by its name or its address: then the ways to the containers are traced to which it leads, and a
real packet shows where FROM's own rules lead one. With FROM an address outside, or the word outside, TO may be a port of a
host, HOST:PORT, which a container has published or by which a service is exposed. What leaves by an egress is told,
and which host holds that.

Where these differ, the first line says so: a flow that somebody changed, an entry of the fast path that is stale,
a firewall that drops what the switch has let pass, and where.

The packet is one that begins nothing: TCP's SYN, which the container's own kernel resets at once when it is
answered, an ICMP echo request, or an empty datagram; it is sent again once if nothing comes back. --dry sends none;
neither does it for those who may look and not touch. A host with GRAPEVINE_CAPTURE=off lets nobody else send from,
and look into, its containers.

Exit status: 0 nothing was found in the way; 1 something was; 2 it could not be found out.`,
		Example: `  grapevine trace web db
  grapevine trace web db:80
  grapevine trace outside db:80                          # from beyond the cluster
  grapevine trace web 192.0.2.80:443 --dry --flows
  grapevine trace db web -o json | jq -r .verdict`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("`grapevine trace` wants two ends: `grapevine trace FROM TO:PORT`")
			}
			return nil
		},
		ValidArgsFunction: complete(containerNames),
		RunE: func(c *cobra.Command, args []string) error {
			format, client, err := asking(c)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), 2*patience)
			defer cancel()
			t, err := traceOf(ctx, client, args[0], args[1], dry)
			if err != nil {
				fmt.Fprintln(c.ErrOrStderr(), "grapevine:", orMeant(ctx, client, err, args))
				return errNotAsked
			}
			if format == "json" {
				err = printJSON(c.OutOrStdout(), t)
			} else {
				err = showTrace(c.OutOrStdout(), t, flows)
			}
			switch {
			case t.Wrong:
				return errors.Join(err, errSomethingWrong)
			case t.Unknown:
				return errors.Join(err, errNotAsked)
			}
			return err
		},
	}
	c.Flags().BoolVar(&flows, "flows", false, "every flow of the switches that matches")
	c.Flags().BoolVar(&dry, "dry", false, "send no packet from within the container")
	return c
}

// orMeant adds to an error about a name, which no container has, the one that it is a slip of.
func orMeant(ctx context.Context, c *api.Client, err error, ends []string) string {
	if !strings.Contains(err.Error(), "there is no container ") {
		return err.Error()
	}
	endpoints, failed := c.Endpoints(ctx)
	if failed != nil {
		return err.Error()
	}
	return err.Error() + slipOf(endpoints, err.Error(), ends)
}

// slipOf is pure: what to add to what was said of the ends' names.
func slipOf(endpoints []api.Endpoint, said string, ends []string) string {
	var known []string
	for _, e := range endpoints {
		known = append(append(known, e.Name), e.Aliases...)
	}
	slices.Sort(known)
	known = slices.Compact(known)
	for _, end := range ends {
		name := end
		if e, err := explainRequest(end, end); err == nil {
			name = e.To
		}
		_, on, is := strings.Cut(name, "/")
		if is {
			name = on
		}
		if meant := config.Nearest(name, known); meant != "" && strings.Contains(said, "there is no container "+name+" ") && !slices.Contains(known, name) {
			return "; did you mean " + meant + "?"
		}
	}
	return ""
}

// traceOf asks for all that the verdict is made of.
func traceOf(ctx context.Context, c *api.Client, from, to string, dry bool) (t traced, err error) {
	e, err := explainRequest(from, to)
	if err != nil {
		return t, err
	}
	r := api.TraceRequest{From: e.From, To: e.To, Proto: e.Proto, Port: e.Port, Dry: dry}
	l, err := c.Lead(ctx, r)
	var answered *api.Error
	switch {
	case errors.As(err, &answered) && (answered.Status == http.StatusNotFound || answered.Status == http.StatusForbidden):
		return traceWay(ctx, c, r, nil) // an agent of an older version, which leads as well, and cannot say so
	case err != nil:
		return t, err
	case l.Kind != "":
		return traceLed(ctx, c, r, l)
	}
	if r.From = cmp.Or(l.From, r.From); l.Addr.IsValid() {
		r.To = l.Addr.String()
	}
	if t, err = traceWay(ctx, c, r, nil); err != nil {
		return t, err
	}
	return bothFamilies(ctx, c, r, leaves(t, l)), nil
}

// bothFamilies asks for the same over IPv6, if the ends have both families and nobody chose one of them.
func bothFamilies(ctx context.Context, c *api.Client, r api.TraceRequest, t traced) traced {
	for _, end := range []string{r.From, r.To} {
		if _, err := netip.ParseAddr(end); err == nil {
			return t
		}
	}
	endpoints, err := c.Endpoints(ctx)
	if err != nil {
		t.NotTried = append(t.NotTried, "IPv6: "+err.Error())
		return t
	}
	from, to := sixthOf(endpoints, t.From), sixthOf(endpoints, t.To)
	if !from.IsValid() || !to.IsValid() {
		return t
	}
	r.From, r.To = from.String(), to.String()
	six, err := traceWay(ctx, c, r, &t)
	if err != nil {
		t.NotTried = append(t.NotTried, "IPv6: "+err.Error())
		return t
	}
	return joinFamilies(t, six)
}

// sixthOf is pure: the IPv6 address of the endpoint that an end is by IPv4; invalid: there is none.
func sixthOf(endpoints []api.Endpoint, p api.Peer) netip.Addr {
	for _, e := range endpoints {
		if p.Network == "" || e.Network != p.Network || !p.Addr.Is4() || !slices.Contains(e.Addrs, p.Addr) {
			continue
		}
		for _, a := range e.Addrs {
			if a.Is6() && !a.IsLinkLocalUnicast() {
				return a
			}
		}
	}
	return netip.Addr{}
}

// joinFamilies is pure: the verdict over IPv4, and what is different over IPv6. Where somebody listens by one of them alone, programs try the
// other at once: that is no fault.
func joinFamilies(four, six traced) traced {
	four.Over6 = &six
	refused := func(t traced) bool { p := packetOf(t.Would); return p != nil && p.Answer == "refused" }
	verdict := strings.TrimSuffix(four.Verdict, ".")
	switch {
	case four.Wrong == six.Wrong && four.Unknown == six.Unknown:
	case six.Wrong && refused(six):
		four.Verdict = verdict + ", over IPv4 alone: over IPv6 nobody listens."
	case four.Wrong && refused(four):
		four.Verdict, four.Wrong, four.Do = strings.TrimSuffix(six.Verdict, ".")+", over IPv6 alone: over IPv4 nobody listens.", false, ""
	case six.Wrong:
		four.Wrong, four.Unknown, four.Do = true, false, six.Do
		four.Verdict = fmt.Sprintf("over IPv6 %s. Over IPv4: %s.", strings.TrimSuffix(six.Verdict, "."), verdict)
	case four.Wrong:
		four.Verdict = fmt.Sprintf("over IPv4 %s. Over IPv6: %s", verdict, six.Verdict)
	case six.Unknown:
		four.Unknown, four.Do = true, six.Do
		four.Verdict = fmt.Sprintf("%s, over IPv4. Over IPv6: %s", verdict, six.Verdict)
	}
	return four
}

// morePings are sent if a packet through the tunnel was lost.
const morePings = 4

// traceWay asks for one way, which nothing leads elsewhere. before is the same way over the other family, if that was asked for: the tunnel is
// that of both.
func traceWay(ctx context.Context, c *api.Client, r api.TraceRequest, before *traced) (t traced, err error) {
	if t.Explanation, err = c.Policies().Explain(ctx, api.ExplainRequest{From: r.From, To: r.To, Proto: r.Proto, Port: r.Port}); err != nil {
		return t, err
	}
	would, wouldErr := c.Trace(ctx, r)
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return t, err
	}
	if before != nil {
		t.Ping, t.Again = before.Ping, before.Again
	} else if other := farHost(t.Explanation, nodes); other != "" {
		ping, err := c.Ping(ctx, other)
		if err != nil {
			return t, err
		}
		t.Ping = &ping
		for range morePings {
			if ping.Error != "" || ping.Tunnel.Lost == "" && ping.Full.Lost == "" {
				break
			}
			again, err := c.Ping(ctx, other)
			if err != nil {
				break
			}
			t.Again = append(t.Again, again)
		}
	}
	if wouldErr == nil {
		t.Would = &would
	}
	endpoints, err := c.Endpoints(ctx)
	if err != nil {
		return t, err
	}
	t.Paused = pausedOf(endpoints, t.From, t.To)
	t = judge(t, nodes)
	if wouldErr != nil {
		t.NotTried = append(t.NotTried, "what the switches would do: "+wouldErr.Error())
	}
	return t, nil
}

// pausedOf is pure: which of the ends are containers that are paused.
func pausedOf(endpoints []api.Endpoint, ends ...api.Peer) (names []string) {
	for _, p := range ends {
		for _, e := range endpoints {
			if e.Paused && p.Network != "" && e.Network == p.Network && slices.Contains(e.Addrs, p.Addr) {
				names = append(names, peerName(p))
			}
		}
	}
	return names
}

// farHost is the host of one end, if the other end is on this host; else empty.
func farHost(e api.Explanation, nodes []api.Node) string {
	for _, n := range nodes {
		switch {
		case n.Self && n.Name == e.From.Host && e.To.Host != n.Name:
			return e.To.Host
		case n.Self && n.Name == e.To.Host && e.From.Host != n.Name:
			return e.From.Host
		}
	}
	return ""
}

// judge is pure: the first thing that is in the way.
func judge(t traced, nodes []api.Node) traced {
	from, to := peerName(t.From), peerName(t.To)
	packet := packetOf(t.Would)
	if packet == nil {
		t.NotTried = []string{"a packet from within the container", "whether the other end listens"}
	} else if packet.Error != "" {
		t.NotTried = []string{"a packet from within the container: " + packet.Error}
	}
	answered := answeredWords(packet, to)
	passed := packet != nil && packet.Error == "" && slices.Contains([]string{"open", "echo", "datagram"}, packet.Answer)
	// What was seen wins over what is inferred: of a packet that was answered nobody says that it does not come there.
	wrong := func(do, format string, args ...any) traced {
		how := fmt.Sprintf("%s does not reach %s: ", from, to)
		if passed {
			how = fmt.Sprintf("%s reaches %s, %s; yet ", from, to, answered)
		}
		t.Wrong, t.Do, t.Verdict = true, do, how+fmt.Sprintf(format, args...)
		return t
	}
	denied := func(do, format string, args ...any) traced {
		switch {
		case passed:
			format += ": report this"
		case packet != nil && packet.Answer != "" && packet.Answer != "unreachable":
			format += "; yet a real packet was answered: report this"
		}
		return wrong(do, format, args...)
	}
	if t.From.Network != "" && t.To.Network != "" && t.From.Network != t.To.Network && !meet(t.Notes) {
		return denied(fmt.Sprintf("grapevine network join %s %s, or docker network connect %s %s, if they are to meet", t.From.Network, t.To.Network, t.To.Network, from), "the networks %s and %s do not meet", t.From.Network, t.To.Network)
	}
	if i := slices.IndexFunc(t.Notes, func(n string) bool { return strings.HasPrefix(n, "no container has ") }); i >= 0 {
		return wrong("grapevine endpoints lists the addresses that there are", "%s", t.Notes[i])
	}
	for _, d := range []struct {
		api.Decision
		what string
	}{{t.Egress, "leave " + from}, {t.Ingress, "enter " + to}} {
		if !d.Allowed {
			why := d.Why
			for _, r := range d.Rules {
				why += "; " + ruleWords(r)
			}
			return denied("grapevine policy explain says more", "policies do not let it %s: %s", d.what, why)
		}
	}
	if packet != nil && packet.Answer != "" {
		if what, do := lostAt(packet, to); what != "" {
			return wrong(do, "%s", what)
		}
	}
	if len(t.Paused) > 0 {
		return wrong("docker unpause "+strings.Join(t.Paused, " "), "%s is paused: its kernel answers for it, and no program in it does", strings.Join(t.Paused, ", and so is "))
	}
	for _, n := range nodes {
		if !n.Self && !n.Alive && (n.Name == t.From.Host || n.Name == t.To.Host) {
			return wrong("grapevine status", "the agent of host %s does not answer, so that the names of containers there are not found", n.Name)
		}
	}
	switch {
	case packet == nil:
	case packet.Held:
		return wrong("look at nft list ruleset and iptables -S inside the container (nsenter -n)", "its own firewall, a rule inside of %s, does not let it send: %s", from, packet.Error)
	case packet.Stuck:
		return wrong("look at ip addr and ip route inside the container", "it cannot send: %s", packet.Error)
	}
	if what, do := inTheWay(t.Would); what != "" {
		return wrong(do, "%s", what)
	}
	if what, do := lostAt(packet, to); what != "" {
		return wrong(do, "%s", what)
	}
	switch {
	case t.Ping == nil && t.From.Host != t.To.Host && t.From.Host != "" && t.To.Host != "":
		t.NotTried = append(t.NotTried, "the way between the hosts: run it on the host of one of the two ends")
	case t.Ping == nil:
	case t.Ping.Error != "":
		return wrong("grapevine doctor", "host %s: %s", t.Ping.Host, t.Ping.Error)
	default:
		if what := lostInTunnel(append([]api.Ping{*t.Ping}, t.Again...)); what != "" {
			return wrong("grapevine doctor, here and on "+t.Ping.Host, "%s", what)
		}
	}
	switch {
	case answered != "":
		t.Verdict = fmt.Sprintf("%s reaches %s, %s.", from, to, answered)
	case packet != nil && packet.Failed:
		t.Unknown, t.Do = true, "see why, and try again; an ordinary program there may be able to send what this could not"
		t.Verdict = fmt.Sprintf("It is not known whether %s reaches %s: a packet from within the container could not be sent: %s.", from, to, packet.Error)
	default:
		t.Verdict = fmt.Sprintf("Nothing was found in the way from %s to %s.", from, to)
	}
	return t
}

// lostInTunnel is pure: what several packets of each size through the tunnel say together; empty: nothing is wrong. That one is lost and the
// next one is not has to do with chance, and not with the size.
func lostInTunnel(pings []api.Ping) string {
	var small, large int // that were lost
	var first, full api.Echo
	for _, p := range pings {
		if p.Tunnel.Lost != "" {
			small, first = small+1, p.Tunnel
		}
		if p.Full.Lost != "" {
			large, full = large+1, p.Full
		}
	}
	switch n := len(pings); {
	case small == n:
		return "a packet through the tunnel " + first.Lost
	case small == 0 && large == n:
		return fmt.Sprintf("a packet of %d bytes through the tunnel %s; small ones pass", full.Bytes, full.Lost)
	case small+large > 1:
		return fmt.Sprintf("a part of what goes through the tunnel is lost: %d of %d small packets, and %d of %d large ones", small, n, large, n)
	}
	return ""
}

// meet says whether nothing in the notes keeps two networks apart.
func meet(notes []string) bool {
	for _, n := range notes {
		if len(n) > 15 && n[:15] == "nothing passes " {
			return false
		}
	}
	return true
}

func showTrace(w io.Writer, t traced, flows bool) error {
	fmt.Fprintln(w, t.Verdict)
	if t.Do != "" {
		fmt.Fprintln(w, "To do: "+t.Do)
	}
	fmt.Fprintln(w)
	if t.Led != nil {
		showLed(w, *t.Led)
	}
	if t.Led != nil && t.Led.Kind != "" {
		return showWays(w, t, flows)
	}
	return showWay(w, t, flows)
}

// showWay shows what was found on one way.
func showWay(w io.Writer, t traced, flows bool) error {
	if err := showExplanation(w, t.Explanation); err != nil {
		return err
	}
	if t.Would != nil {
		showWould(w, *t.Would, flows)
		if t.Would.Packet != nil {
			showDoes(w, *t.Would.Packet)
		}
	}
	if t.Ping != nil {
		fmt.Fprintf(w, "  this host and %s: %s\n", t.Ping.Host, pingLine(*t.Ping))
	}
	for _, n := range t.NotTried {
		fmt.Fprintln(w, "  not tried: "+n)
	}
	switch six := t.Over6; {
	case six == nil:
	case six.Wrong || six.Unknown || flows:
		fmt.Fprintln(w, "over IPv6:")
		return showWay(w, *six, flows)
	default:
		fmt.Fprintln(w, "  over IPv6, too: "+six.Verdict)
	}
	return nil
}
