package driver

import "time"

// Compose looks which networks there are, and uses them up to a second later by what it saw.
// A network that went meanwhile is an error there ("network not found"). One that came is
// another error ("already exists", at which engines before 25 end it).
//
// Nobody can tell what a client of Docker's API has seen, but that there is a client can be
// told. So what the agent makes and removes in Docker for the cluster's sake waits until there
// is none, or for so long. Then the client's containers are there, and the network stays for
// them. When a network comes, a client that has been there for long is not waited for: it
// listens to events (a proxy, a monitor). It may also be a Compose that has waited for images;
// that asks again if there is such a network already.
const (
	vanishWait = 5 * time.Second
	createWait = time.Second // shorter: somebody wants to use it
	// createAnswers is how many times as long as Docker takes to list what it has a client may take between looking and
	// making: on a busy host all take longer.
	createAnswers = 20
)

// createWait is the limit for a network that comes.
func (d *applier) createWait() time.Duration {
	return min(max(createWait, createAnswers*d.answers), vanishWait)
}

// defers reports whether a change of what has that ID or name was first wanted so short a
// time ago that it waits for clients of Docker's API.
func (d *applier) defers(what string, limit time.Duration) bool {
	now := d.core.cfg.Now()
	since, known := d.waited[what]
	if !known {
		since = now
	}
	d.waiting[what] = since
	return now.Sub(since) <= limit
}

// busy reports whether there is a client at Docker's API, as one of its client's methods counts
// them; then the watcher looks again soon.
func (d *applier) busy(count func() int) bool {
	if count() == 0 {
		return false
	}
	d.core.again = true
	return true
}
