//go:build never

package deps

import (
	_ "github.com/cilium/ebpf"
	_ "github.com/coreos/go-iptables/iptables"
	_ "github.com/digitalocean/go-openvswitch/ovs"
	_ "github.com/docker/docker/client"
	_ "github.com/docker/go-plugins-helpers/ipam"
	_ "github.com/docker/go-plugins-helpers/network"
	_ "github.com/docker/go-plugins-helpers/sdk"
	_ "github.com/fxamacker/cbor/v2"
	_ "github.com/google/btree"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/hashicorp/memberlist"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/spf13/cobra"
	_ "github.com/vishvananda/netlink"
	_ "go.etcd.io/bbolt"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "pgregory.net/rapid"
)
