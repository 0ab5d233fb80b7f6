// Package lab gives a test several Docker hosts on one machine: a real dockerd
// and a real grapevine agent each, on a wire whose links can be cut, with an
// outside beyond it that is reached through NAT only.
//
// A host is of one of two kinds with the same methods. A [Namespace] host is a
// set of Linux namespaces (PID, network, mount, UTS, IPC) and boots in tens of
// milliseconds. A [UML] host is a User-Mode Linux kernel of its own with the
// openvswitch module and a disk; killing it loses what was not synced, as a
// power loss does. Either kind sees the machine's files below an overlay, so
// everything in it has its default path (/var/run/docker.sock,
// /var/lib/grapevine, ...) and nothing it writes reaches the machine.
//
//	hostN  192.0.2.N/24, fd00:db8::N/64, default route to the wire's .254 and ::fe
//	outside  198.51.100.7, 2001:db8:51::7: answers ping, and HTTP with the client's address
//
// All of it hangs on the process that called [New]: if that one is killed, the
// hosts' first processes read an end of file and their namespaces go with them.
// What is left then (a tmpfs, empty cgroups) is removed by [Clean], which New
// calls first.
//
// A program that uses the lab calls [Init] before anything else, since the lab
// starts the same program again as the first process of its hosts; tests do it
// by way of [Main].
package lab
