package pipeline

import (
	"fmt"
	"net"
)

// FromTunnel is what stands in a frame that comes out of the tunnel's device in HeaderBits mode: the VNID, and the
// index of the VTEP that sent it.
func FromTunnel(vnid, index uint32) (src, dst net.HardwareAddr) {
	return net.HardwareAddr{0x02, 0, 0, byte(vnid >> 16), byte(vnid >> 8), byte(vnid)}, vtepMAC(index)
}

// VTEPRegister is the register, as the switch calls it, in which the index of a packet's VTEP is.
func VTEPRegister() string { return fmt.Sprintf("reg%d", regVTEP.Num) }
