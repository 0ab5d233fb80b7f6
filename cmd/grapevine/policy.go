package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
)

func newPolicy() *cobra.Command {
	c := verb(&cobra.Command{
		Use:   "policy",
		Short: "Say who may talk to whom, and ask why",
		Long: `Say which containers may talk to which, in the YAML of Kubernetes: NetworkPolicy, with a network's name
for the namespace and containers' labels for those of pods, and ClusterNetworkPolicy; and OpenShift's
EgressNetworkPolicy, of what a network's containers reach outside. Every host may change every policy, and every host enforces it; unless GRAPEVINE_POLICY_KEYS says whose signature it takes. docs/use/policy.md has recipes.`,
		Example: `  grapevine policy apply -f db.yaml
  grapevine policy allow web db:5432
  grapevine policy list
  grapevine policy explain web db:5432`,
	}, patience, list(of((*api.Client).Policies, api.PolicyCalls.List)), showPolicies)
	c.AddCommand(newPolicyApply(), newPolicyTry(), newPolicyLearn(), newPolicyAllow(), newPolicyDelete(), newPolicyGet(), newPolicyList(), newPolicyCount(), newPolicyLog(), newPolicyExplain())
	return c
}

// maxPolicyText is what a text of policies may have, bytes.
const maxPolicyText = 1 << 20

func newPolicyApply() *cobra.Command {
	var file, key string
	c := verb(&cobra.Command{
		Use:   "apply -f FILE",
		Short: "Apply policies: all of a file, or none",
		Long: `Apply the policies of a file of YAML, of one or more documents: all of them, or none. A policy that
is there is replaced. What grapevine does not know or cannot enforce is an error that names it.
It returns when this host enforces them; the others do so as soon as they hear of it.

One with the annotation grapevine.io/mode: try is only tried: every host counts what it would deny, and none denies it. What is in
force under its name stays so, until it is applied without that annotation.

With --key they are signed by that key before anything is sent: hosts whose GRAPEVINE_POLICY_KEYS has its public half enforce
what was signed so, and nothing else. ssh-keygen signs, where this command runs: a laptop with -H ssh://, whose key no host sees.`,
		Example: `  grapevine policy apply -f db.yaml
  grapevine -H ssh://host7 policy apply --key ~/.ssh/policy -f db.yaml
  grapevine policy get | grapevine -H ssh://host7 policy apply -f -    # into another cluster`,
		Args: noNames,
	}, patience, func(ctx context.Context, c *api.Client, _ []string) (api.Done, error) {
		text, err := readPolicies("apply", file)
		if err != nil {
			return api.Done{}, err
		}
		if key != "" {
			return applySigned(ctx, c, key, text)
		}
		return c.Policies().Apply(ctx, api.ApplyRequest{Text: text})
	}, showDone)
	c.Flags().StringVarP(&file, "filename", "f", "", "the file; - is the standard input")
	c.Flags().StringVar(&key, "key", "", keyUsage)
	return c
}

// keyUsage is of the flag --key.
const keyUsage = "sign with this key of ssh-keygen -t ed25519: its file, or that of its public half, if ssh-agent has it"

func readPolicies(verb, file string) (string, error) {
	if file == "" {
		return "", fmt.Errorf("`grapevine policy %s` wants a file: -f FILE, or -f - for the standard input", verb)
	}
	in := io.Reader(os.Stdin)
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", fmt.Errorf("read policies: %w", err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxPolicyText+1))
	if err != nil {
		return "", fmt.Errorf("read policies: %w", err)
	}
	if len(text) > maxPolicyText {
		return "", fmt.Errorf("%s has more than %d bytes: split it", file, maxPolicyText)
	}
	return string(text), nil
}

// policyKinds are what the kinds may be called.
var policyKinds = []string{"networkpolicy", "clusternetworkpolicy", "egressnetworkpolicy"}

func newPolicyDelete() *cobra.Command {
	var key string
	c := verb(&cobra.Command{
		Use: "delete KIND NAME", Aliases: []string{"rm", "remove"},
		Short: "Delete a policy",
		Long: `Delete a policy, on all hosts: a NetworkPolicy (or netpol) and an EgressNetworkPolicy (or enp) by NETWORK/NAME, a
ClusterNetworkPolicy (or cnp) by NAME. What it alone denied passes from then on. One that is tried under this name ends with it. One that is signed is deleted
by a signature: --key.`,
		Example: `  grapevine policy delete netpol shop_default/db
  grapevine policy delete --key ~/.ssh/policy netpol shop_default/db
  grapevine policy delete cnp no-lan`,
		Args:              kindAndName,
		ValidArgsFunction: completePolicy,
	}, patience, func(ctx context.Context, c *api.Client, args []string) (api.Done, error) {
		network, name, on := strings.Cut(args[1], "/")
		if !on {
			network, name = "", args[1]
		}
		if key != "" {
			return deleteSigned(ctx, c, key, args[0], network, name)
		}
		return c.Policies().Delete(ctx, api.DeletePolicyRequest{Kind: args[0], Network: network, Name: name})
	}, showDone)
	c.Flags().StringVar(&key, "key", "", keyUsage)
	return c
}

func kindAndName(c *cobra.Command, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("`%s` wants a kind and a name: `%s netpol NETWORK/NAME`, or `%s cnp NAME`", c.CommandPath(), c.CommandPath(), c.CommandPath())
	}
	return nil
}

func completePolicy(c *cobra.Command, args []string, text string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return policyKinds, cobra.ShellCompDirectiveNoFileComp
	}
	return complete(policyNames)(c, args, text)
}

func policyNames(ctx context.Context, c *api.Client) (map[string]string, error) {
	all, err := c.Policies().List(ctx)
	names := map[string]string{}
	for _, p := range all.Policies {
		names[p.String()] = p.Kind + ", applied on " + p.Author
	}
	return names, err
}

func newPolicyGet() *cobra.Command {
	var lost bool
	c := verb(&cobra.Command{
		Use:   "get [NAME...]",
		Short: "Print policies as YAML",
		Long: `Print policies (NETWORK/NAME, or NAME of a ClusterNetworkPolicy) as YAML, all if none is named. With --lost: what
edits had in them that were lost, since somebody on another host changed the policy at the same time. A comment says what a
policy's rules let through and denied on this host.`,
		Example: `  grapevine policy get shop_default/db
  grapevine policy get > policies.yaml`,
		Args:              named("a policy", 0, 0),
		ValidArgsFunction: complete(policyNames),
	}, patience, func(ctx context.Context, c *api.Client, names []string) ([]api.Policy, error) {
		all, err := c.Policies().List(ctx)
		if err != nil {
			return nil, err
		}
		is := func(p api.Policy, name string) bool { return p.String() == name }
		list, err := pick("policy", all.Policies, names, is, api.Policy.String)
		return withoutCovered(list), err
	}, func(w io.Writer, list []api.Policy) error { return showPolicyTexts(w, list, lost) })
	c.Flags().BoolVar(&lost, "lost", false, "edits that were lost, instead")
	return c
}

// withoutCovered leaves out what a host does not enforce where it enforces another one of that name: what is printed can be applied.
func withoutCovered(list []api.Policy) []api.Policy {
	return slices.DeleteFunc(slices.Clone(list), func(p api.Policy) bool {
		return p.Mode == api.ModeIgnored && slices.ContainsFunc(list, func(o api.Policy) bool {
			return o.Mode == api.ModeEnforce && o.Kind == p.Kind && o.String() == p.String()
		})
	})
}

func showPolicyTexts(w io.Writer, list []api.Policy, lost bool) error {
	var texts []string
	for _, p := range list {
		if !lost {
			texts = append(texts, standing(p)+countedHere(p)+p.Text)
			continue
		}
		for _, l := range p.Lost {
			text := "# " + p.String() + " was deleted"
			if l.Text != "" {
				text = "# " + p.String() + " was to be this"
			}
			texts = append(texts, fmt.Sprintf("%s, on host %s, version %d\n%s", text, l.Author, l.Version, l.Text))
		}
	}
	_, err := io.WriteString(w, strings.Join(texts, "---\n"))
	return err
}

// standing is a comment of YAML: whether the host enforces it, and who signed it.
func standing(p api.Policy) string {
	switch {
	case p.Mode == api.ModeIgnored:
		return fmt.Sprintf("# %s: %s\n", p, strings.Join(p.Notes, "; "))
	case p.Signer != "":
		return fmt.Sprintf("# %s: signed by %s, serial %d\n", p, p.Signer, p.Serial)
	}
	return ""
}

// countedHere is a comment of YAML.
func countedHere(p api.Policy) string {
	n := p.Counted
	if n == nil {
		return ""
	}
	if p.Mode == api.ModeTry {
		return fmt.Sprintf("# %s is only tried; on this host it would have denied %s so far\n", p, words.Plural(int(n.WouldDeny), "connection"))
	}
	return fmt.Sprintf("# %s, on this host so far: let %s begin (%s); denied %s\n", p,
		words.Plural(int(n.Connections), "connection"), words.Plural(int(n.Packets), "packet"), words.Plural(int(n.DeniedPackets), "packet"))
}

func newPolicyList() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "list",
		Short: "List the policies, and which hosts do not enforce them",
		Long: `List the policies of the cluster, with what their rules let through and denied on this host: connections that they let begin,
and packets that they denied. Of one that is only tried (MODE try) it is how many connections it would have denied. It is "-" where none of a policy's rules is in force here; ` + "`grapevine policy count --all`" + ` is of all hosts.`,
		Example: `  grapevine policy list
  grapevine policy list -o json | jq -r '.policies[] | select(.selects == 0) | .name'`,
		Args: noNames,
	}, patience, list(of((*api.Client).Policies, api.PolicyCalls.List)), showPolicies)
}

func showPolicies(w io.Writer, all api.Policies) error {
	err := table(w, "KIND\tNAME\tSELECTS\tMODE\tCONNECTIONS HERE\tDENIED HERE\tAPPLIED ON\tVERSION\tNOTE", func(row func(string, ...any)) {
		for _, p := range all.Policies {
			let, denied := "-", "-"
			switch n := p.Counted; {
			case n == nil:
			case p.Mode == api.ModeTry:
				denied = "would: " + words.Plural(int(n.WouldDeny), "connection")
			default:
				let, denied = strconv.FormatUint(n.Connections, 10), strconv.FormatUint(n.DeniedPackets, 10)
			}
			selects := strconv.Itoa(p.Selects)
			if p.MaySelect > 0 {
				selects += fmt.Sprintf(" (and %d of unknown labels)", p.MaySelect)
			}
			notes := p.Notes
			if len(p.Lost) > 0 {
				notes = append(notes, "an edit of it was lost: grapevine policy get --lost "+p.String())
			}
			row("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s", p.Kind, p, selects, cmp.Or(p.Mode, api.ModeEnforce), let, denied, p.Author, p.Version, dash(strings.Join(notes, "; ")))
		}
	})
	for _, n := range all.Notes {
		fmt.Fprintln(w, n)
	}
	return err
}

func newPolicyExplain() *cobra.Command {
	return verb(&cobra.Command{
		Use:   "explain FROM TO[:PORT[/PROTOCOL]]",
		Short: "Say whether policies let a connection through, and why",
		Long: `Say whether policies let a connection through, and which rules of which policies decide it, from any host.
FROM and TO are containers (NAME or NETWORK/NAME), addresses or IDs; TO may be a name outside, as api.github.com.
Without a port it is about a ping; the protocol is tcp, udp or sctp, tcp if none is said. What is not known counts as
what would be denied; which addresses a container was told by name only its own host knows.`,
		Example: `  grapevine policy explain web db:5432
  grapevine policy explain shop_default/web db:53/udp
  grapevine policy explain job api.github.com:443
  grapevine policy explain 192.0.2.7 '[fd00::2]:80'`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("`%s` wants two ends: `grapevine policy %s`", c.CommandPath(), c.Use)
			}
			return nil
		},
		ValidArgsFunction: complete(containerNames),
	}, patience, func(ctx context.Context, c *api.Client, args []string) (api.Explanation, error) {
		r, err := explainRequest(args[0], args[1])
		if err != nil {
			return api.Explanation{}, err
		}
		return c.Policies().Explain(ctx, r)
	}, showExplanation)
}

func containerNames(ctx context.Context, c *api.Client) (map[string]string, error) {
	all, err := c.Endpoints(ctx)
	names := map[string]string{}
	for _, e := range all {
		if e.Name != "" {
			names[e.Name] = "on " + e.Network + ", host " + e.Host
		}
	}
	return names, err
}

// explainRequest reads TO[:PORT[/PROTOCOL]]. An IPv6 address with a port is in brackets.
func explainRequest(from, to string) (r api.ExplainRequest, err error) {
	r = api.ExplainRequest{From: from, To: to}
	at := strings.LastIndex(to, ":")
	if at < 0 || strings.Count(to, ":") > 1 && !strings.Contains(to, "]:") {
		r.To = strings.Trim(to, "[]")
		return r, nil
	}
	port, proto, _ := strings.Cut(to[at+1:], "/")
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return r, fmt.Errorf("%.80q has no port from 1 to 65535 behind its colon: TO:PORT, TO:PORT/udp", to)
	}
	r.To, r.Port, r.Proto = strings.Trim(to[:at], "[]"), uint16(n), proto
	return r, nil
}

func showExplanation(w io.Writer, e api.Explanation) error {
	verdict := "denied"
	if e.Allowed {
		verdict = "allowed"
	}
	fmt.Fprintf(w, "%s to %s, %s: %s\n", peerWords(e.From), peerWords(e.To), e.What, verdict)
	showDecision(w, "leaving "+peerName(e.From), e.Egress)
	showDecision(w, "entering "+peerName(e.To), e.Ingress)
	if t := e.Tried; t != nil && t.Allowed != e.Allowed {
		verdict := "denied"
		if t.Allowed {
			verdict = "allowed"
		}
		fmt.Fprintf(w, "if what is only tried were enforced (%s): %s\n", some(t.Policies), verdict)
		for _, r := range t.Rules {
			fmt.Fprintf(w, "    %s\n", ruleWords(r))
		}
		for _, u := range t.Unknown {
			fmt.Fprintf(w, "    not known: %s\n", u)
		}
	} else if t != nil {
		fmt.Fprintf(w, "if what is only tried were enforced (%s): the same\n", some(t.Policies))
	}
	for _, n := range e.Notes {
		fmt.Fprintln(w, n)
	}
	return nil
}

func peerName(p api.Peer) string {
	if p.Name == "" && p.Addr.IsValid() {
		return p.Addr.String()
	}
	return p.Name
}

func peerWords(p api.Peer) string {
	if p.Host == "" {
		return peerName(p)
	}
	return fmt.Sprintf("%s (%s on %s, host %s)", peerName(p), p.Addr, p.Network, p.Host)
}

func showDecision(w io.Writer, what string, d api.Decision) {
	verdict := "denied"
	if d.Allowed {
		verdict = "allowed"
	}
	fmt.Fprintf(w, "  %s: %s: %s\n", what, verdict, d.Why)
	for _, r := range d.Passed {
		fmt.Fprintf(w, "    passed on by %s\n", ruleWords(r))
	}
	for _, r := range d.Rules {
		fmt.Fprintf(w, "    %s\n", ruleWords(r))
	}
	for _, n := range d.Counted {
		fmt.Fprintf(w, "    %s\n", countWords(n))
	}
	for _, t := range d.Told {
		fmt.Fprintf(w, "    told so when it asked for %s at %s; new connections may begin until %s\n", t.Name, t.Asked.Format(time.TimeOnly), t.Until.Format(time.DateTime))
	}
	for _, u := range d.Unknown {
		fmt.Fprintf(w, "    not known: %s\n", u)
	}
}

// countWords is what a rule counted, on the host where it is in force.
func countWords(n api.RuleCount) string {
	packets := words.Plural(int(n.Packets), "packet")
	if n.Packets > 0 {
		packets += ", " + trafficBytes(n.Packets, n.Bytes)
	}
	switch {
	case n.Action == "Accept":
		return fmt.Sprintf("let %s begin so far: %s", words.Plural(int(n.Connections), "connection"), packets)
	case n.Container != "":
		return "no rule let through so far: " + packets
	}
	return "denied so far: " + packets
}

func ruleWords(r api.PolicyRule) string {
	if r.Author == "" { // an option's, or a label's
		return fmt.Sprintf("%s (%s)", r.Rule, r.Action)
	}
	return fmt.Sprintf("%s (%s), applied on host %s, version %s", r.Rule, r.Action, r.Author, r.Version)
}
