package secure

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/host/wireguard"
)

// Peers are the other hosts that encrypt, all or what encrypted networks send, by their own signed records: each may have its own address inside, and no
// other. It is pure. A device has a key once, so of those that name the same the one has it that proves that it is its own; where none does, as with
// agents older than proofs, the one that comes first. own is this host's, which nobody else has.
func Peers(snap *cluster.Snapshot, self cluster.NodeID, own wireguard.Key) (list []wireguard.Peer) {
	return peers(snap, self, own, func(n cluster.Node) saidKey { return saidKey{n.SecureKey(), n.KeyProof, n.WireGuardAt} })
}

// Seconds are those of the device that stands in while keys change.
func Seconds(snap *cluster.Snapshot, self cluster.NodeID, own wireguard.Key) (list []wireguard.Peer) {
	return peers(snap, self, own, func(n cluster.Node) saidKey { return saidKey{n.Turn.Second, n.Turn.SecondProof, n.Turn.SecondAt} })
}

// saidKey is what a host's record says of a key.
type saidKey struct {
	raw, proof []byte
	at         netip.AddrPort
}

func (s saidKey) proven(id cluster.NodeID) bool {
	return wireguard.Key(s.raw).Proves(string(id), s.proof)
}

func peers(snap *cluster.Snapshot, self cluster.NodeID, own wireguard.Key, of func(cluster.Node) saidKey) (list []wireguard.Peer) {
	type claim struct {
		id   cluster.NodeID
		said saidKey
	}
	claims := map[wireguard.Key]claim{}
	for n := range cluster.All[cluster.Node](snap) {
		s := of(n)
		if n.ID == self || n.SecureKey() == nil || len(s.raw) != cluster.WireGuardKeySize || !s.at.IsValid() || s.at.Port() == 0 || !cluster.SecureVTEP(n.ID).IsValid() {
			continue
		}
		key := wireguard.Key(s.raw)
		// A proof takes some 0.1 ms, and is asked for where it matters alone.
		if first, taken := claims[key]; key == own || taken && (first.said.proven(first.id) || !s.proven(n.ID)) {
			continue
		}
		claims[key] = claim{n.ID, s}
	}
	for key, c := range claims {
		inside := cluster.SecureVTEP(c.id)
		list = append(list, wireguard.Peer{Key: key, Endpoint: netip.AddrPortFrom(c.said.at.Addr().Unmap(), c.said.at.Port()), Inside: netip.PrefixFrom(inside, inside.BitLen())})
	}
	slices.SortFunc(list, func(a, b wireguard.Peer) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	return list
}

// Unlike returns a problem for the hosts that this one cannot reach because one of the two encrypts and the other does not.
// It is pure, and answers for a host that does not encrypt as well.
func Unlike(snap *cluster.Snapshot, self cluster.NodeID, encrypts bool) (list []api.Problem) {
	var names []string
	others := 0
	for n := range cluster.All[cluster.Node](snap) {
		if n.ID == self {
			continue
		}
		if others++; n.Encrypts() != encrypts {
			names = append(names, cmp.Or(n.Name, string(n.ID)))
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	hosts, does := words.SomeHosts(names, others), "does not encrypt"
	if len(names) > 1 {
		does = "do not encrypt"
	}
	p := api.Problem{
		Code: api.HostUnencrypted,
		What: fmt.Sprintf("%s %s what containers send, and this host takes and sends nothing in the clear: nothing passes between their containers and this host's", hosts, does),
		Do:   "set GRAPEVINE_ENCRYPTION=all there as well, with an agent that knows it, or `off` on every host",
	}
	if !encrypts {
		p.What = fmt.Sprintf("this host does not encrypt what containers send, and %s take and send nothing in the clear: nothing passes between their containers and this host's", hosts)
		if len(names) == 1 {
			p.What = fmt.Sprintf("this host does not encrypt what containers send, and %s takes and sends nothing in the clear: nothing passes between its containers and this host's", hosts)
		}
		p.Do = "set GRAPEVINE_ENCRYPTION=all on this host as well, or `off` on every host"
	} else if len(names) == 1 {
		p.What = fmt.Sprintf("%s %s what containers send, and this host takes and sends nothing in the clear: nothing passes between its containers and this host's", hosts, does)
	}
	return []api.Problem{p}
}

// Without are the hosts that cannot take part in encrypted networks, of which there are some, and this host if it
// cannot, for a reason. It is pure.
func Without(snap *cluster.Snapshot, self cluster.NodeID, cannot error) (list []api.Problem) {
	networks := encrypted(snap)
	if len(networks) == 0 {
		return nil
	}
	of := fmt.Sprintf("network %s is encrypted", networks[0])
	if more := len(networks) - 1; more > 0 {
		of = fmt.Sprintf("network %s and %s are encrypted", networks[0], words.Plural(more, "other"))
	}
	if cannot != nil {
		return []api.Problem{{
			Code: api.HostUnencrypted,
			What: fmt.Sprintf("%s, and this host cannot encrypt: nothing passes between it and other hosts there, nor does Docker here get it: %v", of, cannot),
			Do:   "mend that and start the agent again",
		}}
	}
	others, names := 0, []string(nil)
	for n := range cluster.All[cluster.Node](snap) {
		if n.ID == self {
			continue
		}
		if others++; n.SecureKey() == nil {
			names = append(names, cmp.Or(n.Name, string(n.ID)))
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []api.Problem{{
		Code: api.HostUnencrypted,
		What: fmt.Sprintf("%s, and %s cannot encrypt: nothing of that passes between there and this host", of, words.SomeHosts(names, others)),
		Do:   "`grapevine status` there says why: GRAPEVINE_ENCRYPTION=off, or something that it lacks; or its agent is older than encrypted networks",
	}}
}

// encrypted are the names of encrypted networks, in order.
func encrypted(snap *cluster.Snapshot) (names []string) {
	for n := range cluster.All[cluster.Network](snap) {
		if n.Encrypted() {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// theFirst names some of them.
func theFirst(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return words.Listed(names[:most]) + " and " + words.Plural(more, "other")
	}
	return words.Listed(names)
}
