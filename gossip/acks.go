package gossip

import (
	"math/rand/v2"
	"reflect"
	"sync/atomic"
	"unsafe"

	"github.com/hashicorp/memberlist"
)

// numberAcks has memberlist number what it asks from a random point on. It begins at 0 in each run, and an
// answer is a number and no more: whoever recorded those to an earlier run could send them again, and
// a host that is off was alive for ever (TestReplayOfAcks). memberlist has no setting for it, so its field is
// written; where a later one has none of that name and type, that is said by false, which fails the tests.
func numberAcks(ml *memberlist.Memberlist) bool {
	f := reflect.ValueOf(ml).Elem().FieldByName("sequenceNum")
	if !f.IsValid() || f.Kind() != reflect.Uint32 {
		return false
	}
	atomic.StoreUint32((*uint32)(unsafe.Pointer(f.UnsafeAddr())), rand.Uint32())
	return true
}
