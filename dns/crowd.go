package dns

import "sync"

// Limits of connections over TCP, of all containers of this host together and of each: one that
// opens many keeps none from others, and costs so many files and no more.
const (
	maxTCP         = 1024
	maxTCPPerAsker = 128
)

// crowd counts who is there, by a key.
type crowd struct {
	most, each int

	mu  sync.Mutex
	all int
	by  map[string]int
}

func newCrowd(most, each int) *crowd { return &crowd{most: most, each: each, by: map[string]int{}} }

// enter reports whether one more may come; who did has to leave.
func (c *crowd) enter(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= c.most || c.by[key] >= c.each {
		return false
	}
	c.all++
	c.by[key]++
	return true
}

func (c *crowd) leave(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.by[key]--; c.by[key] == 0 {
		delete(c.by, key)
	}
}
