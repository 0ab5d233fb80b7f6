// Package reject tells senders at once that a rule of a policy rejects what they send: by a RST for TCP, and for the rest
// by "administratively prohibited" (ICMP 3/13, ICMPv6 1/1). Which packets are rejected is the switch's to say, and where
// an answer may go (pipeline, reject.go): here it is only written. Without the agent there is none, and what is rejected is
// dropped all the same.
package reject
