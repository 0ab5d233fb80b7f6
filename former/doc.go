// Package former keeps policies from taking a container for the one that had its address before.
//
// Another host knows a container by its address. Until that host has heard who has the address now, it goes by the labels of who
// had it before. So the host of the new container, which knows, keeps its switch from sending that container's packets there, and
// from taking what comes for it from there, until the other host has said that it has heard, and that its switch goes by it.
//
// What hosts have heard is told in their digests' terms (cluster.Snapshot.Mark): a host that has heard all that this one wrote, up to
// the write by which the address was let go, does not know the former container any more. So one answer clears every address that
// was let go before, and where containers come and go a host is asked once for many of them.
package former
