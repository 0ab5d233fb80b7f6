package link

import (
	"bytes"
	"fmt"
	"sort"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Commands and layouts of linux/ethtool.h. All are host byte order.
const (
	ethtoolGStrings  = 0x1b
	ethtoolGSSetInfo = 0x37
	ethtoolGFeatures = 0x3a
	ethtoolSFeatures = 0x3b
	ethSSFeatures    = 4
	ethGStringLen    = 32
)

// feature is where a device feature stands in the kernel's bit sets.
type feature struct {
	block int
	mask  uint32
}

// featureBlock is struct ethtool_get_features_block.
type featureBlock struct{ Available, Requested, Active, NeverChanged uint32 }

// setBlock is struct ethtool_set_features_block.
type setBlock struct{ Valid, Requested uint32 }

// Features returns the device features that are on, by the kernel's names
// (tx-tcp-segmentation, ...; `ethtool -k` shows aliases of some).
func Features(name string) (map[string]bool, error) {
	e, err := openEthtool(name)
	if err != nil {
		return nil, err
	}
	defer e.close()
	names, err := e.names()
	if err != nil {
		return nil, err
	}
	blocks, err := e.features(names)
	if err != nil {
		return nil, err
	}
	on := make(map[string]bool, len(names))
	for n, f := range names {
		on[n] = blocks[f.block].Active&f.mask != 0
	}
	return on, nil
}

// SetFeatures turns device features on and off. A name that this kernel does not
// have is passed over when it is to be off, and an error when it is to be on; so is
// one that the device cannot change.
func SetFeatures(name string, want map[string]bool) error {
	e, err := openEthtool(name)
	if err != nil {
		return err
	}
	defer e.close()
	names, err := e.names()
	if err != nil {
		return err
	}
	have, err := e.features(names)
	if err != nil {
		return err
	}
	set := make([]setBlock, len(have))
	for _, n := range sortedKeys(want) {
		f, known := names[n]
		if !known {
			if want[n] {
				return fmt.Errorf("interface %s: the kernel knows no feature %q", name, n)
			}
			continue
		}
		if on := have[f.block].Active&f.mask != 0; on == want[n] {
			continue
		}
		if have[f.block].Available&f.mask == 0 {
			return fmt.Errorf("interface %s: feature %q cannot be changed", name, n)
		}
		set[f.block].Valid |= f.mask
		if want[n] {
			set[f.block].Requested |= f.mask
		}
	}
	return e.set(set)
}

func sortedKeys(m map[string]bool) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// ethtool is a socket to ask about one device.
type ethtool struct {
	fd   int
	name string
}

func openEthtool(name string) (*ethtool, error) {
	if len(name) >= unix.IFNAMSIZ {
		return nil, fmt.Errorf("interface name %q is longer than %d bytes", name, unix.IFNAMSIZ-1)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket for ethtool: %w", err)
	}
	return &ethtool{fd, name}, nil
}

func (e *ethtool) close() { _ = unix.Close(e.fd) }

// names returns where each feature of the kernel stands.
func (e *ethtool) names() (map[string]feature, error) {
	info := struct {
		cmd, reserved uint32
		mask          uint64
		n             uint32
	}{cmd: ethtoolGSSetInfo, mask: 1 << ethSSFeatures}
	if err := e.ioctl(unsafe.Pointer(&info)); err != nil {
		return nil, err
	}
	buf := make([]uint32, 3+int(info.n)*ethGStringLen/4)
	buf[0], buf[1], buf[2] = ethtoolGStrings, ethSSFeatures, info.n
	if err := e.ioctl(unsafe.Pointer(&buf[0])); err != nil {
		return nil, err
	}
	text := unsafe.Slice((*byte)(unsafe.Pointer(&buf[0])), len(buf)*4)[12:]
	names := make(map[string]feature, info.n)
	for i := range int(info.n) {
		s, _, _ := bytes.Cut(text[i*ethGStringLen:(i+1)*ethGStringLen], []byte{0})
		if len(s) > 0 {
			names[string(s)] = feature{i / 32, 1 << (i % 32)}
		}
	}
	return names, nil
}

// features returns the device's bit sets, enough for all names.
func (e *ethtool) features(names map[string]feature) ([]featureBlock, error) {
	blocks := 0
	for _, f := range names {
		blocks = max(blocks, f.block+1)
	}
	buf := make([]uint32, 2+4*blocks)
	buf[0], buf[1] = ethtoolGFeatures, uint32(blocks)
	if err := e.ioctl(unsafe.Pointer(&buf[0])); err != nil {
		return nil, err
	}
	out := make([]featureBlock, blocks)
	for i := range out {
		b := buf[2+4*i:]
		out[i] = featureBlock{b[0], b[1], b[2], b[3]}
	}
	return out, nil
}

func (e *ethtool) set(blocks []setBlock) error {
	buf := make([]uint32, 2, 2+2*len(blocks))
	buf[0], buf[1] = ethtoolSFeatures, uint32(len(blocks))
	for _, b := range blocks {
		buf = append(buf, b.Valid, b.Requested)
	}
	return e.ioctl(unsafe.Pointer(&buf[0]))
}

// ioctl runs the command that data begins with. A positive result of
// ETHTOOL_SFEATURES (some bit came out differently, since features depend on each
// other) is no error.
func (e *ethtool) ioctl(data unsafe.Pointer) error {
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [24 - unsafe.Sizeof(uintptr(0))]byte
	}
	copy(req.name[:], e.name)
	req.data = data
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(e.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return fmt.Errorf("ethtool on interface %s: %w", e.name, mapErr(errno))
	}
	return nil
}
