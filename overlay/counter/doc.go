// Package counter counts what containers send, by connection, in the kernel: each packet once, at the host's end
// of the sender's veth, and what the host and the outside send to containers at gv0; there, before the fast path and
// the switch, by whichever of them it is carried then.
//
// It is off until it is started, and costs nothing then. A map of bounded size has the counts; what has no room there
// is counted as lost. Programs and counts outlive the agent.
package counter
