package cluster

import (
	"bytes"
	"fmt"
	"sync"
)

// Kind says what a record describes. The numbers are wire format: append only.
type Kind uint8

// The kinds of record and who writes them.
const (
	KindNode     Kind = 1 // one per host, written by that host (tombstoned by forget)
	KindNetwork  Kind = 2 // one per network name, many writers
	KindSubnet   Kind = 3 // one per prefix of a network, many writers
	KindEndpoint Kind = 4 // one per endpoint, written by its host
	KindUse      Kind = 5 // "host H has containers on network N", written by H
	KindClaim    Kind = 6 // one per block of the ring, written by who gave it away
	KindPolicy   Kind = 8 // one per scope, network and name, many writers (7 was never written)
	KindService  Kind = 9 // one per network and name, many writers
	// KindAddresses is one per host, written by that host.
	KindAddresses Kind = 10
	KindRealm     Kind = 11 // one per network name, many writers
	KindEgress    Kind = 12 // one per name, many writers
	// KindEgressHolder is one per egress, written by whoever holds its addresses.
	KindEgressHolder Kind = 13
	KindListen       Kind = 14 // one per endpoint and host, written by that host
	KindTrial        Kind = 15 // one per scope, network and name, many writers
	KindLabelEgress  Kind = 16 // one per name, many writers
	KindBare         Kind = 17 // one per host, written by that host
	// KindSignedPolicy is one per scope, network, name and operator's key, many writers.
	KindSignedPolicy Kind = 18
	KindThrough      Kind = 19 // one per host, written by that host
	KindUnfit        Kind = 20 // one per host, written by that host
	// KindNetworkLimits is one per network name, many writers.
	KindNetworkLimits Kind = 21
)

// kinds say of each kind what the records of that kind have in common. A new kind is a row here, its number above, and
// a file with its body (Body).
var kinds = [...]struct {
	name string // for people
	// decode reads the body of a record with a key.
	decode func(key Key, raw []byte) (Body, error)
	// lasting: tombstones stay for good. A host that has been away brings back what it still has: of a Node that would
	// be a forgotten host, of a policy a rule that somebody has taken back, of a service or an egress an address that others have.
	lasting bool
	// urgent: this host may need it before it hears of it again, so that it has to be on the disk: who owns what,
	// networks, for which Docker asks as soon as it starts, and what its containers may then do.
	urgent bool
	// lost, if it is not nil, says of two of them, the one that stays and the one that goes, whether an edit is lost by that: its bodies
	// say which edits they were made over.
	lost func(winner, loser *Record) (Lost, bool)
	// order, if it is not nil, says which of two under one key stays, before their versions do; 0: these do. What this host would write
	// and does not stay is refused.
	order func(a, b *Record) int
	// perHost: a host writes one, under its ID, beside its Node.
	perHost bool
	// unread: what decode cannot make sense of is kept and passed on, as of a kind that this agent does not know.
	unread bool
}{
	KindNode:     {name: "node", decode: decodeAs[Node], lasting: true},
	KindNetwork:  {name: "network", decode: decodeAs[Network], urgent: true},
	KindSubnet:   {name: "subnet", decode: decodeAs[Subnet], urgent: true},
	KindEndpoint: {name: "endpoint", decode: decodeEndpoint},
	KindUse:      {name: "use", decode: decodeAs[Use]},
	KindClaim:    {name: "claim", decode: decodeAs[Claim], urgent: true},
	KindPolicy:   {name: "policy", decode: decodeAs[Policy], lasting: true, urgent: true, lost: lost},
	KindService:  {name: "service", decode: decodeAs[Service], lasting: true, urgent: true},

	KindAddresses:    {name: "addresses", decode: decodeAs[Addresses], perHost: true},
	KindRealm:        {name: "realm", decode: decodeAs[Realm], urgent: true, lost: lost},
	KindEgress:       {name: "egress", decode: decodeAs[Egress], lasting: true, urgent: true},
	KindEgressHolder: {name: "egress holder", decode: decodeAs[EgressHolder], urgent: true},
	KindListen:       {name: "listen", decode: decodeAs[Listen]},
	KindTrial:        {name: "trial", decode: decodeAs[Trial], lasting: true},
	KindLabelEgress:  {name: "egress by label", decode: decodeAs[LabelEgress], lasting: true, urgent: true},
	KindBare:         {name: "bare", decode: decodeAs[Bare], perHost: true},
	// Its tombstones may go: they take nothing away (signedOrder).
	KindSignedPolicy: {name: "signed policy", decode: decodeSigned, urgent: true, lost: lostSigned, order: signedOrder, unread: true},
	KindThrough:      {name: "through", decode: decodeAs[Through], perHost: true},
	KindUnfit:        {name: "unfit", decode: decodeAs[Unfit], perHost: true},

	KindNetworkLimits: {name: "network limits", decode: decodeAs[NetworkLimits], urgent: true},
}

// known reports whether this agent knows what records of a kind say.
func (k Kind) known() bool { return int(k) < len(kinds) && kinds[k].decode != nil }

func (k Kind) lasting() bool { return k.known() && kinds[k].lasting }

// lost says of two records of a kind whether an edit is lost by the one that stays.
func (k Kind) lost(winner, loser *Record) (l Lost, is bool) {
	if !k.known() || kinds[k].lost == nil {
		return l, false
	}
	return kinds[k].lost(winner, loser)
}

// ordered reports whether records of a kind have an order of their own, before that of versions.
func (k Kind) ordered() bool { return k.known() && kinds[k].order != nil }

// unread reports whether a body of a kind may be one that this agent cannot make sense of.
func (k Kind) unread() bool { return !k.known() || kinds[k].unread }

// Urgent reports whether a record of a kind has to be on the disk before others hear that it is here.
func (k Kind) Urgent() bool { return k.known() && kinds[k].urgent }

// String names a kind for people.
func (k Kind) String() string {
	if k.known() {
		return kinds[k].name
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Key identifies a record: what ID is, the body of its kind says by its method Key.
type Key struct {
	Kind Kind
	ID   string
}

// String is "kind id", for people.
func (k Key) String() string { return fmt.Sprintf("%s %.80q", k.Kind, k.ID) }

// Body is the content of a live record, by value: of the kinds that have a row, or what this agent cannot read. The numbers in the field
// tags are wire format: append only.
type Body interface {
	Key() Key
	// validate returns nil if it keeps to the limits of this package and makes sense by itself.
	validate() error
	// speaker is the only host that may write it, "" if any may.
	speaker() NodeID
}

// Validate returns nil if a body keeps to the limits of this package and what it
// says makes sense by itself. The error says which field is wrong.
func Validate(b Body) error { return b.validate() }

// speaksFor reports whether a host may write a body: what says something about
// one host is written by that host.
func speaksFor(writer NodeID, b Body) bool {
	if b == nil { // of a tombstone
		return true
	}
	host := b.speaker()
	return host == "" || host == writer
}

// hostOf returns the host that an endpoint or use is on, "" of other bodies. Who forgets the host may delete them.
func hostOf(b Body) NodeID {
	if _, node := b.(Node); node || b == nil {
		return ""
	}
	return b.speaker()
}

// decodeBody sets Body, Key and raw.
func (r *Record) decodeBody(raw []byte) (err error) {
	if len(raw) > maxBody {
		return fmt.Errorf("body of %d bytes, at most %d", len(raw), maxBody)
	}
	if !r.Key.Kind.known() {
		r.Body = opaque{r.Key, bytes.Clone(raw)}
		return nil
	}
	if r.Body, err = kinds[r.Key.Kind].decode(r.Key, raw); err != nil {
		return err
	}
	if _, kept := r.Body.(opaque); kept {
		return nil
	}
	r.Key = r.Body.Key()
	again := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(again)
	again.Reset()
	if err := encoding.MarshalToBuffer(r.Body, again); err != nil {
		return err
	}
	if !bytes.Equal(again.Bytes(), raw) {
		r.raw, r.more = bytes.Clone(raw), true
	}
	return nil
}

// buffers are for what is compared and thrown away.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func decodeAs[T Body](_ Key, raw []byte) (Body, error) {
	var b T
	err := decoding.Unmarshal(raw, &b)
	return b, err
}

// Only are the keys of the records of which a host writes one, beside its Node.
func Only(s *Snapshot, id NodeID) (keys []Key) {
	for k := range kinds {
		key := Key{Kind(k), string(id)}
		if !kinds[k].perHost {
			continue
		}
		if r, there := s.Record(key); there && r.Deleted == 0 {
			keys = append(keys, key)
		}
	}
	return keys
}
