// Package dns is the agent's resolver. Containers' questions reach it in two ways:
// at the gateway, where a rule leads packets for port 53 to it (Rules), and inside
// the container's network namespace, in front of Docker's own resolver (Attach).
// docs/use/dns.md says which engine needs which.
//
// What package names knows is answered here; everything else goes on, byte for
// byte, to the server that was asked, or to the host's.
//
// Standards: RFC 1035, RFC 2308 (negative answers), RFC 4343 (case), RFC 5452
// (random ports and IDs), RFC 6891 (EDNS), RFC 7766 (TCP), RFC 8482 (ANY).
package dns
