package gossip

import (
	"errors"
)

// inbox leads what comes from memberlist to the rooms that it is for.
type inbox struct {
	*core
	presence *presence
	roster   *roster
	refusals *refusals
	merger   *merger
	comparer *comparer
	beater   *beater
	server   *server
	caller   *caller
}

// receive takes a message from memberlist: it copies, hands on and returns.
func (i *inbox) receive(b []byte, pushPull bool) {
	e, err := decodeEnvelope(b, versions{min(protoProof, i.cfg.speaks.min), i.cfg.speaks.max})
	if err == nil && e.version < i.cfg.speaks.min && e.kind != kindRequest && e.kind != kindResponse { // but for proofs
		err = errVersion
	}
	switch {
	case errors.Is(err, errVersion):
		// Who speaks none of ours is refused by name, by NotifyAlive. Of a member this
		// was written before it knew us.
		i.stats.add(RefusedVersion, 1)
		return
	case err != nil:
		i.stats.add(RefusedGarbage, 1)
		return
	case e.from == i.self && e.kind != kindRequest && e.kind != kindResponse: // but for proofs
		return
	}
	switch ours := i.presence.clusterID(); {
	case ours == "" || e.cluster == "":
		i.stats.add(RefusedNoCluster, 1)
		return
	case e.cluster != ours:
		id := e.from.String()
		_ = i.refusals.refuseForeign(Foreign{ID: id, Cluster: e.cluster}, i.roster.lastAddr(id), ours)
		return
	}
	e.body = append([]byte(nil), e.body...)
	switch e.kind {
	case kindDelta:
		i.merger.enqueue(delta{e.from.String(), e.body})
	case kindSum:
		i.comparer.heard(e.from.String(), e.body, pushPull)
	case kindRequest:
		i.server.heard(e)
	case kindResponse:
		i.caller.heard(e.from.String(), e.body)
	case kindBeat, kindSlow:
		i.beater.heardBeat(e)
	case kindDoubt:
		i.beater.heardDoubt(e.body)
	}
}
