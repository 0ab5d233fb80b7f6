package tunnel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/host/link"
)

// CanWrap is why this kernel has no device for Geneve; nil: it has. It makes one, and takes it away again.
func CanWrap() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "gvprobe"
	err := netlink.LinkAdd(&netlink.Geneve{LinkAttrs: attrs, FlowBased: true, Dport: encap.Geneve.Port})
	if err == nil {
		return link.Delete(attrs.Name)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("this kernel has no Geneve devices, and GRAPEVINE_ENCAP is geneve: load their module (`modprobe geneve`; on Debian and Ubuntu it is in the kernel's package, perhaps in linux-modules-extra), or set GRAPEVINE_ENCAP=vxlan on every host: %w", err)
	}
	return nil // such a device is there already, or it will be told when one is made
}
