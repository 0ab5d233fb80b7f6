package main

import (
	"fmt"
	"io"

	"github.com/grapevine-net/grapevine/api"
)

// packetOf is the real packet of a trace, if there was one.
func packetOf(t *api.Trace) *api.TracePacket {
	if t == nil {
		return nil
	}
	return t.Packet
}

// lostAt is pure: between which two places a packet, or the answer, was lost, and what to do.
func lostAt(p *api.TracePacket, to string) (what, do string) {
	switch {
	case p == nil || p.Error != "" || len(p.Points) == 0:
		return "", ""
	case p.Answer == "refused":
		return "its packets arrive, and the answer comes back: nobody listens at that port", "start what is to listen there, on all addresses and not on 127.0.0.1 alone"
	case p.Answer == "unreachable":
		return "somebody on the way, this host by one of its routing rules among them, or " + to + " itself, answers that it cannot be reached", "for UDP: nobody listens at that port; else grapevine status names a rule of this host that drops, and grapevine capture shows who says so"
	case p.Answer != "":
		return "", ""
	}
	last := -1
	for i, at := range p.Points {
		if at.Seen {
			last = i
		}
	}
	if last < 0 {
		return "its packet does not leave it: its own routes, or a firewall inside of it, hold it back", "look at ip route and nft list ruleset inside the container"
	}
	at := p.Points[last]
	packet := map[bool]string{false: "the packet", true: "the answer"}[at.Back]
	if last+1 == len(p.Points) {
		return "", ""
	}
	next := p.Points[last+1]
	switch {
	case at.Back != next.Back && at.Container == "" || at.Back != next.Back && at.Host != next.Host:
		return fmt.Sprintf("%s was seen at %s last", packet, place(at)), "grapevine doctor there"
	case at.Back != next.Back && len(p.Points) == 2:
		return fmt.Sprintf("%s leaves %s by %s, and nothing comes back", packet, at.Container, at.Place), fmt.Sprintf("on host %s: grapevine doctor; is %s there, and does it answer?", at.Host, to)
	case at.Back != next.Back && p.NoWay != "":
		return fmt.Sprintf("%s arrives in %s, which has no way back: %s", packet, at.Container, p.NoWay), "look at ip addr, ip route and ip -6 route inside of " + at.Container
	case at.Back != next.Back && p.What == "empty UDP datagram":
		return "", "" // it arrived, and few answer to nothing
	case at.Back != next.Back:
		return fmt.Sprintf("%s arrives in %s, which does not answer", packet, at.Container), "look for a firewall inside of it, its routes, or whether it is paused"
	case at.Container != "" && next.Container != "" && at.Host != next.Host:
		return fmt.Sprintf("%s leaves %s on host %s, and is lost before it is in %s on host %s: on one of the two hosts, or between them", packet, at.Container, at.Host, next.Container, next.Host),
			fmt.Sprintf("grapevine doctor on host %s and on host %s", at.Host, next.Host)
	case at.Container == "" && next.Container == "":
		return fmt.Sprintf("%s leaves host %s by %s in %s, and does not come to %s of host %s", packet, at.Host, at.Place, wrapping(at.Encap), next.Place, next.Host),
			fmt.Sprintf("something between the two hosts drops it: let %s pass from host %s to host %s", passing(at.Encap), at.Host, next.Host)
	case at.Container == "":
		return fmt.Sprintf("%s comes to host %s at %s in %s, and is dropped there before it is in %s", packet, at.Host, at.Place, wrapping(at.Encap), next.Container),
			fmt.Sprintf("on host %s: grapevine doctor, which names a rule of its firewall that drops %s", at.Host, wrapping(at.Encap))
	case next.Container == "":
		return fmt.Sprintf("%s leaves %s, and host %s drops it before it leaves by %s", packet, at.Container, at.Host, next.Place),
			fmt.Sprintf("on host %s: grapevine doctor, which names a rule of its firewall that drops %s, and grapevine drops", at.Host, wrapping(next.Encap))
	}
	return fmt.Sprintf("%s leaves %s, and host %s drops it before it is in %s", packet, at.Container, at.Host, next.Container), fmt.Sprintf("on host %s: grapevine drops", at.Host)
}

func place(p api.TracePoint) string {
	if p.Container == "" {
		return fmt.Sprintf("%s of host %s, in %s", p.Place, p.Host, wrapping(p.Encap))
	}
	return fmt.Sprintf("%s of %s, host %s", p.Place, p.Container, p.Host)
}

// answeredWords says what came back; empty: nothing did.
func answeredWords(p *api.TracePacket, to string) string {
	if p == nil || p.Error != "" {
		return ""
	}
	took := fmt.Sprintf(" after %.2f ms", p.Milliseconds)
	switch p.Answer {
	case "open":
		return "where somebody listens: the answer came back" + took
	case "echo":
		return "and the answer came back" + took
	case "datagram":
		return "which answers" + took
	}
	for i, at := range p.Points {
		if at.Seen && !at.Back && (i+1 == len(p.Points) || p.Points[i+1].Back) && len(p.Points) > 2 {
			return "which says nothing to an empty datagram"
		}
	}
	return ""
}

func showDoes(w io.Writer, p api.TracePacket) {
	if p.Error != "" {
		return
	}
	for _, at := range p.Points {
		way, seen := "there", "not seen"
		if at.Back {
			way = "back"
		}
		if at.Seen {
			seen = "seen"
		}
		fmt.Fprintf(w, "  does, %s: %s: %s\n", way, place(at), seen)
	}
	if p.Answer != "" {
		fmt.Fprintf(w, "  does: one %s: %s, after %.2f ms\n", p.What, map[string]string{
			"open": "somebody listens", "refused": "nobody listens", "echo": "answered", "datagram": "answered", "unreachable": "somebody says that it cannot be reached",
		}[p.Answer], p.Milliseconds)
	} else {
		fmt.Fprintf(w, "  does: one %s: no answer\n", p.What)
	}
	for _, n := range p.Notes {
		fmt.Fprintln(w, "  "+n)
	}
}
