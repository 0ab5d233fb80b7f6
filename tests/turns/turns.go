// Package turns is for tiers of which a run of all tests has a part: the parts take turns by the hour.
package turns

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

// Variable is that of the environment which says the turn in place of the hour: to run again what a run had.
const Variable = "TURN"

// Now is the turn: what Variable says, or the hour in which this program first asked. A run that goes on into the next has one turn.
var Now = sync.OnceValue(func() int {
	said := os.Getenv(Variable)
	if said == "" {
		return int(time.Now().Unix() / 3600)
	}
	n, err := strconv.Atoi(said)
	if err != nil || n < 0 {
		panic(fmt.Sprintf("%s=%s is no turn: give the number that a run of all tests printed", Variable, said))
	}
	return n
})

// Of says which of n parts, from 0 on, has its turn.
func Of(n int) int { return Now() % n }

// Within says which of n has its turn within a part that has its own once in so many hours: the next one each time.
func Within(hours, n int) int { return Now() / hours % n }

// Part is one of n parts of a list, which together are all of it: every nth, from the one of that number on.
func Part[T any](list []T, n, part int) (some []T) {
	for i := part; i < len(list); i += n {
		some = append(some, list[i])
	}
	return some
}

// Every says of a long row that is walked through which to take: from one on each step-th. In a run of all tests it is one of n
// parts, by its turn, else all of them.
func Every(n int) (from, step int) {
	if os.Getenv(Variable) == "" {
		return 0, 1
	}
	return Of(n), n
}
