package cluster

// Standing says what is known of whether a host is there.
type Standing int

// The standings of a host.
const (
	Answers  Standing = iota
	Doubtful          // it has been silent for a moment, and may be dead
	Gone              // no agent answers: the host is dead, or has left, or its agent alone is down
)
