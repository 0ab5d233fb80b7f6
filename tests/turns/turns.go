// Package turns is for tiers of which a run of all tests has a part: the parts take turns by the hour.
package turns

import (
	"sync"
	"time"
)

// hour is the one in which this program began: a run that goes on into the next has one turn.
var hour = sync.OnceValue(func() int { return int(time.Now().Unix() / 3600) })

// Of says which of n parts, from 0 on, has its turn in the hour in which this program first asked.
func Of(n int) int { return hour() % n }

// Within says which of n has its turn within a part that has its own once in so many hours: the next one each time.
func Within(hours, n int) int { return hour() / hours % n }

// Part is one of n parts of a list, which together are all of it: every nth, from the one of that number on.
func Part[T any](list []T, n, part int) (some []T) {
	for i := part; i < len(list); i += n {
		some = append(some, list[i])
	}
	return some
}
