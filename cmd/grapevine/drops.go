package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/observe/drops"
)

// dropped is what one flow dropped, or more of the same who, where to and why.
type dropped struct {
	Packets uint64      `json:"packets"`
	Bytes   uint64      `json:"bytes"`
	Class   drops.Class `json:"class"`
	Reason  string      `json:"reason"` // as in the metric grapevine_drops_total
	Who     string      `json:"who,omitempty"`
	WhereTo string      `json:"whereTo,omitempty"`
	Why     string      `json:"why"`
	Do      string      `json:"do,omitempty"`
	// Rule is that of the policy that denies it: shop/db ingress[0].
	Rule string `json:"rule,omitempty"`
	// Endpoint is the ID of that of Who, if it is one.
	Endpoint string `json:"endpoint,omitempty"`
}

func newDrops() *cobra.Command {
	noise := false
	c := verb(&cobra.Command{
		Use:   "drops",
		Short: "Say what this host's switch drops: who sent it, where to, why, and what to do",
		Long: `Say what this host's switch has dropped: who sent it, where to, why, and what to do about it. First
comes what nobody honest sends (alien), then isolation at work (meant). What every host drops by the
thousands, such as multicast (noise), is left out but for --all.

The switch counts packets by flow, and not by connection: who and where to are as exact as the flow that
drops. A spoofing container has its name; of two networks that do not meet it is known that they do not,
and not which of their containers tried. What a firewall drops never comes to the switch: see
grapevine doctor. Counters are since the flow came to be.`,
		Example: `  grapevine drops
  grapevine drops -o json | jq '.[] | select(.class == "alien")'`,
	}, patience, func(ctx context.Context, c *api.Client, _ []string) ([]dropped, error) {
		flows, err := c.Flows(ctx)
		if err != nil {
			return nil, err
		}
		return droppedBy(flows, endpointNames(ctx, c), noise), nil
	}, showDrops)
	c.Flags().BoolVar(&noise, "all", false, "noise too")
	return watched(c)
}

// droppedBy sums what flows dropped, the worst first. It is pure.
func droppedBy(flows []api.Flow, names map[string]string, noise bool) []dropped {
	list := []dropped{}
	for _, f := range flows {
		if !drops.Is(f.Table, f.Actions) || f.Packets == 0 {
			continue
		}
		k := drops.Of(f.Cookie)
		if k.Class == drops.Noise && !noise {
			continue
		}
		d := dropped{Packets: f.Packets, Bytes: f.Bytes, Class: k.Class, Reason: k.Reason, Who: k.From, WhereTo: k.To, Why: k.Why, Do: k.Do}
		switch k.Reason {
		case drops.Spoofed.Reason:
			d.Who = strings.TrimPrefix(objectName(f, names), "endpoint ")
			d.Endpoint = strings.TrimPrefix(f.Object, "endpoint ")
		case drops.Denied.Reason:
			d.Why = "the policy's " + f.Object + " denies it"
			d.Rule = strings.TrimPrefix(f.Object, "rule ")
		}
		switch guarded := matched(f.Match, "ct_nw_src", "ct_nw_dst", "ct_ipv6_src", "ct_ipv6_dst"); {
		case guarded == "":
		case k.Reason == "egress-policy":
			d.Who = guarded
		case k.Reason == "ingress-policy":
			d.WhereTo = guarded
		}
		if src := matched(f.Match, "nw_src", "ipv6_src", "arp_spa"); src != "" && k != drops.Spoofed {
			d.Who = src
		}
		if dst := matched(f.Match, "nw_dst", "ipv6_dst", "arp_tpa", "nd_target"); dst != "" {
			d.WhereTo = dst
		}
		same := func(o dropped) bool {
			o.Packets, o.Bytes = d.Packets, d.Bytes
			return o == d
		}
		if i := slices.IndexFunc(list, same); i >= 0 {
			list[i].Packets, list[i].Bytes = list[i].Packets+d.Packets, list[i].Bytes+d.Bytes
			continue
		}
		list = append(list, d)
	}
	rank := []drops.Class{drops.Alien, drops.Meant, drops.Noise}
	slices.SortStableFunc(list, func(a, b dropped) int {
		return cmp.Or(cmp.Compare(slices.Index(rank, a.Class), slices.Index(rank, b.Class)), cmp.Compare(b.Packets, a.Packets))
	})
	return list
}

// matched is the value of the first of some fields that a flow's match has.
func matched(match string, fields ...string) string {
	for _, part := range strings.Split(match, ",") {
		if name, value, ok := strings.Cut(part, "="); ok && slices.Contains(fields, name) {
			return value
		}
	}
	return ""
}

func showDrops(w io.Writer, list []dropped) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "This host's switch has dropped nothing that matters.  (--all: noise too)")
		return err
	}
	alien := 0
	for _, d := range list {
		if d.Class == drops.Alien {
			alien++
		}
	}
	var text strings.Builder
	switch alien {
	case 0:
		fmt.Fprintf(&text, "This host's switch drops nothing that is not meant so.\n\n")
	default:
		first := list[0]
		fmt.Fprintf(&text, "This host's switch drops what nobody honest sends: %s: %s.\n\n", dash(first.Who), first.Why)
	}
	err := table(&text, "PACKETS\tREASON\tWHO\tWHERE TO\tWHY", func(row func(string, ...any)) {
		for _, d := range list {
			row("%d\t%s\t%s\t%s\t%s", d.Packets, d.Reason, dash(d.Who), dash(d.WhereTo), d.Why)
		}
	})
	if err == nil {
		_, err = io.WriteString(w, screenOf(w).cut(text.String()))
	}
	said := map[string]bool{}
	for _, d := range list {
		if d.Do != "" && !said[d.Reason] && err == nil {
			said[d.Reason] = true
			_, err = fmt.Fprintf(w, "\n%s: %s\n", d.Reason, d.Do)
		}
	}
	return err
}
