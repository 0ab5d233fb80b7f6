package cluster

import (
	"errors"
	"fmt"
)

// Why a record, a digest or a message is refused. Every RefusedError wraps one.
var (
	// ErrMalformed: it is no CBOR of ours, or a value in it is out of bounds.
	ErrMalformed = errors.New("malformed")
	// ErrVersion: the message is of a newer format.
	ErrVersion = errors.New("newer wire format")
	// ErrForged: the record is not signed by its writer, or the body speaks for
	// another host than its writer.
	ErrForged = errors.New("not the word of the host it speaks for")
	// ErrLostWrites: others know writes of this host that it does not know itself:
	// its state directory was restored from a copy, or two agents use one identity.
	// It must not go on under this identity.
	ErrLostWrites = errors.New("writes of this host that it does not know: its state is lost or old")
	// ErrOwned: the claim gives away numbers that this host owns. Other hosts write
	// such claims only when they have forgotten this host.
	ErrOwned = errors.New("claim by another host on numbers that this host owns")
	// ErrCounter: the version is so far ahead that no honest clock got there.
	ErrCounter = errors.New("version counter out of reach")
	// ErrSerial: a signed policy of the same key is there, of this serial or a higher one.
	ErrSerial = errors.New("a later one is signed already")
	// ErrForgotten: the host was forgotten or has left; that is final.
	ErrForgotten = errors.New("host was forgotten by the cluster")
)

// RefusedError says which record was refused and why. Key and Version are zero
// where they could not be read.
type RefusedError struct {
	Key     Key
	Version Version
	// Reason is one of the Err values of this package.
	Reason error
	// Detail says what exactly is wrong; may be nil.
	Detail error
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("refused %s of version %d/%.40s: %v", e.Key, e.Version.Counter, e.Version.Node, e.Reason)
	if e.Detail != nil {
		s += ": " + e.Detail.Error()
	}
	return s
}

// Unwrap gives the reason and the detail to errors.Is and errors.As.
func (e *RefusedError) Unwrap() []error {
	if e.Detail == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Detail}
}

// Refusals returns every RefusedError in err, for counting by reason.
func Refusals(err error) (all []*RefusedError) {
	switch e := err.(type) { //nolint:errorlint // this is the unwrapping
	case nil:
	case *RefusedError:
		all = append(all, e)
	case interface{ Unwrap() []error }:
		for _, sub := range e.Unwrap() {
			all = append(all, Refusals(sub)...)
		}
	case interface{ Unwrap() error }:
		all = Refusals(e.Unwrap())
	}
	return all
}

func refuse(r Record, reason, detail error) *RefusedError {
	return &RefusedError{Key: r.Key, Version: r.Version, Reason: reason, Detail: detail}
}
