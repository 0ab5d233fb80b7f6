package lab

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// umlMain is the first process of a UML kernel. Its root is the machine's file
// system, read-only (hostfs); the host's own one is put together below /mnt.
func umlMain() error {
	if err := os.Setenv("PATH", labPath); err != nil {
		return err
	}
	text, err := os.ReadFile(os.Getenv(specVar))
	if err != nil {
		return fmt.Errorf("read the host's description: %w", err)
	}
	var spec boxSpec
	if err := json.Unmarshal(text, &spec); err != nil {
		return fmt.Errorf("read the host's description: %w", err)
	}
	clearEnv()
	if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := umlMounts(spec.Root); err != nil {
		return err
	}
	if err := spec.Root.enter(); err != nil {
		return err
	}
	if err := umlFiles(spec.Root.Modules); err != nil {
		return err
	}
	// This kernel starts a program for each device that comes or goes, six for a veth pair;
	// nobody's kernel does that since there is udev.
	if err := os.WriteFile("/sys/kernel/uevent_helper", []byte("\n"), 0); err != nil {
		return err
	}
	if err := spec.Net.apply(); err != nil {
		return err
	}
	if err := umlOffload(); err != nil {
		return err
	}
	if err := nudgeDisk(); err != nil {
		return err
	}
	return umlServe()
}

// nudgeDisk reads a block of the disk twice a second, past the cache. UML's block device (6.1) now
// and then overlooks that a request is done until the next one is. Nothing is seen of that while
// there is always a next one; after ext4 has aborted, who holds its superblock waited for such a
// request, and all others for him, for ever.
func nudgeDisk() error {
	disk, err := unix.Open("/dev/ubda", unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the disk: %w", err)
	}
	block, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // O_DIRECT wants it aligned
	if err != nil {
		return fmt.Errorf("make room for a block: %w", err)
	}
	waiting := make(chan struct{}, 8)
	go func() {
		for range time.Tick(500 * time.Millisecond) {
			select {
			case waiting <- struct{}{}:
				go func() { // this one may be overlooked too
					_, _ = unix.Pread(disk, block, 0)
					<-waiting
				}()
			default:
			}
		}
	}()
	return nil
}

// clearEnv drops what the kernel passed on from its command line.
func clearEnv() {
	os.Clearenv()
	for _, kv := range [][2]string{{"PATH", labPath}, {"HOME", "/root"}, {"LANG", "C.UTF-8"}, {"TMPDIR", "/run"}} {
		_ = os.Setenv(kv[0], kv[1]) // fails for malformed names only
	}
}

// umlMounts brings in what enter needs: the overlay module and the disk. The kernel
// itself has mounted /dev.
func umlMounts(root *rootSpec) error {
	m := &mounter{}
	m.at("proc", "/proc", "proc")
	m.at("tmpfs", "/mnt", "tmpfs")
	m.mkdir("/", root.State, root.Mount)
	// The disk's file is new and sparse, so that the inodes' tables are zero. Else ext4 writes 128 MB of zeros into
	// each new disk in the background, and the kernel logs that the block device knows no WRITE_ZEROES.
	m.mount("/dev/ubda", root.State, "ext4", 0, "noinit_itable")
	if m.err != nil {
		return m.err
	}
	dir, err := umlModuleDir()
	if err != nil {
		return err
	}
	out, err := exec.Command("insmod", filepath.Join(dir, "kernel/fs/overlayfs/overlay.ko")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("load the overlay module: %w: %s", err, out)
	}
	return nil
}

func umlModuleDir() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", err
	}
	return filepath.Join(umlModules, unix.ByteSliceToString(name.Release[:])), nil
}

// umlFiles makes modprobe find the kernel's modules, and iptables the tables that
// it has: the kernel's own are no nf_tables for IPv4.
func umlFiles(modules string) error {
	dir, err := umlModuleDir()
	if err != nil {
		return err
	}
	at, links := "/lib/modules/"+filepath.Base(dir), map[string]string{}
	wanted := []string{"-a", "ipv6", "br_netfilter"}
	if links[at] = dir; modules != "" {
		links[at] = modules
		wanted = append(wanted, "tun") // of a laptop's WireGuard
	} else {
		for _, name := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
			links["/usr/local/sbin/"+name] = "/usr/sbin/xtables-legacy-multi"
		}
	}
	if err := mkdirs("/lib/modules", "/usr/local/sbin"); err != nil {
		return err
	}
	for at, to := range links {
		if err := os.Symlink(to, at); err != nil && !os.IsExist(err) {
			return err
		}
	}
	if out, err := exec.Command("modprobe", wanted...).CombinedOutput(); err != nil {
		return fmt.Errorf("load modules: %w: %s", err, out)
	}
	return nil
}

func umlServe() error {
	l, err := net.Listen("tcp4", fmt.Sprintf(":%d", umlPort))
	if err != nil {
		return err
	}
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	if err := l.Close(); err != nil {
		return err
	}
	return serveAndReap(file)
}
