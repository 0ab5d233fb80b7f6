// Package bypass says what packets would miss that a program at the host's NIC takes, or sends, past the host's IP stack:
// rules that would drop, change, log or limit them, and all else that is between the NIC and the VXLAN device. What
// lets packets pass as they are, and at most counts them, is missed by nobody.
//
// Judge and what it calls is pure: it goes through what was read (Rules) for each kind of packet that there may be. Of
// each test in a rule it says yes, no, or that it does not know. A rule that may match, and does more than let the
// packet pass, is a reason against; so is whatever this package does not understand. Watch reads, and hears of changes.
package bypass
