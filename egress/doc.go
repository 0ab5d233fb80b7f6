// Package egress judges which host of the cluster holds an address from which networks reach the outside, and what this
// host is to do about it. It is pure: packages egress/hold and overlay do it.
package egress
