package gossip

import (
	"math/rand/v2"
	"reflect"
	"sync/atomic"
	"unsafe"

	"github.com/hashicorp/memberlist"
)

// numberAcks has memberlist number its questions from a random point on. By itself it begins at 0 in each run, and
// an answer is nothing but the number. So somebody could record the answers to an earlier run and send them again,
// and a host that is off would be alive for ever (TestReplayOfAcks). memberlist has no setting for it, so its field
// is written. False: this memberlist has no field of that name and type, which fails the tests.
func numberAcks(ml *memberlist.Memberlist) bool {
	f := reflect.ValueOf(ml).Elem().FieldByName("sequenceNum")
	if !f.IsValid() || f.Kind() != reflect.Uint32 {
		return false
	}
	atomic.StoreUint32((*uint32)(unsafe.Pointer(f.UnsafeAddr())), rand.Uint32())
	return true
}
