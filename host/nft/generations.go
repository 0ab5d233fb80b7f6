package nft

import "sync"

// Generations tells the number of the ruleset (Conn.Generation) of one network namespace, that of the thread which asks
// first, again and again: a socket for each question, and room for what a dump is, would be most of what an agent
// allocates at rest.
type Generations struct {
	mu   sync.Mutex
	conn *Conn
}

// Now is the number as of now.
func (g *Generations) Now() (uint32, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conn == nil {
		conn, err := Dial()
		if err != nil {
			return 0, err
		}
		conn.buf = make([]byte, 1<<10) // the answer has a number, and who changed the rules last
		g.conn = conn
	}
	n, err := g.conn.Generation()
	if err != nil { // an answer that was late would be the next one's
		g.conn.Close()
		g.conn = nil
	}
	return n, err
}

// Close closes its socket; it may be asked again.
func (g *Generations) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conn != nil {
		g.conn.Close()
		g.conn = nil
	}
}
