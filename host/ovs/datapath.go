package ovs

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/vishvananda/netlink"
)

// kernelFamily is the generic netlink family of the kernel's datapath.
const kernelFamily = "ovs_datapath"

// DetectDatapath says whether the kernel has Open vSwitch's datapath, loading its
// module if it can be loaded; otherwise the userspace datapath is what is left.
func DetectDatapath(ctx context.Context) Datapath {
	if HasKernelDatapath() {
		return Kernel
	}
	if modprobe, err := find("modprobe"); err == nil {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_ = exec.CommandContext(ctx, modprobe, "-q", "openvswitch").Run() // asked again below
	}
	if HasKernelDatapath() {
		return Kernel
	}
	return Userspace
}

// HasKernelDatapath says whether the datapath is there now. It asks the kernel by name, which is right in a container and in a
// network namespace too, where /sys may be another's.
func HasKernelDatapath() bool {
	_, err := netlink.GenlFamilyGet(kernelFamily)
	return err == nil
}

// Version is the version of ovs-vswitchd in PATH, such as 3.1.
func Version(ctx context.Context) (major, minor int, err error) {
	out, err := run(ctx, nil, nil, "ovs-vswitchd", "--version")
	if err != nil {
		return 0, 0, fmt.Errorf("ask ovs-vswitchd for its version: %w", err)
	}
	if _, err := fmt.Sscanf(string(out), "ovs-vswitchd (Open vSwitch) %d.%d", &major, &minor); err != nil {
		return 0, 0, fmt.Errorf("understand the version of ovs-vswitchd %q: %w", out, err)
	}
	return major, minor, nil
}
