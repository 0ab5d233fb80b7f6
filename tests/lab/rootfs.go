package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// rootSpec is a host's file system: an overlay of Lower and the host's own
// directory State, with Docker's data beside it (overlay2 needs a file system
// that is not an overlay), the lab's shared directory at /lab, and /run and
// /dev/shm as new tmpfs.
type rootSpec struct {
	Lower string // "/" or a debootstrapped tree
	State string // holds upper, work, docker; outlives the box
	Mount string // empty directory where the new root is put together
	Share string // seen at /lab
	UML   bool   // own kernel: own devtmpfs and cgroups
	// Modules are its kernel's, "" for those that it came with.
	Modules string
	// Compose is a program that is seen as Docker's command compose; "": none.
	Compose string
}

// Where the host's parts of State and the lab's shared directory are seen.
const (
	dockerData     = "/var/lib/docker"
	containerdData = "/var/lib/containerd"
	shareMount     = "/lab"
	labPath        = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// enter makes the root file system and moves this process' mount namespace into it.
func (r *rootSpec) enter() error {
	if r == nil {
		return nil
	}
	m := &mounter{root: r.Mount}
	m.mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	m.mkdir(r.State, "upper", "work", "docker", "containerd")
	m.overlay(r)
	m.at("proc", "/proc", "proc")
	m.at("sysfs", "/sys", "sysfs")
	if r.UML {
		m.at("devtmpfs", "/dev", "devtmpfs")
		m.mkdir(r.Mount, "dev/pts", "dev/shm")
		m.at("devpts", "/dev/pts", "devpts")
		m.at("cgroup2", "/sys/fs/cgroup", "cgroup2")
	} else {
		m.bind("/dev", "/dev")
		m.bind("/sys/fs/cgroup", "/sys/fs/cgroup")
	}
	m.at("tmpfs", "/dev/shm", "tmpfs")
	m.at("tmpfs", "/run", "tmpfs")
	m.mkdir(r.Mount, "run/lock", "run/docker/plugins", "var/log", "usr/local/bin", shareMount, dockerData, containerdData)
	m.bind(filepath.Join(r.State, "docker"), dockerData)
	m.bind(filepath.Join(r.State, "containerd"), containerdData)
	if r.UML {
		m.mount("none", r.Mount+shareMount, "hostfs", 0, r.Share)
	} else {
		m.bind(r.Share, shareMount)
	}
	m.symlink(shareMount+"/bin/grapevine", "/usr/local/bin/grapevine")
	m.plugin(r.Compose, "compose")
	m.file("/etc/resolv.conf", "nameserver "+OutsideAddr+"\n")
	if m.err != nil {
		return m.err
	}
	return pivot(r.Mount)
}

// pivot makes root this mount namespace's root and drops the old one.
func pivot(root string) error {
	if err := unix.Chdir(root); err != nil {
		return fmt.Errorf("enter %s: %w", root, err)
	}
	if err := unix.PivotRoot(".", "mnt"); err != nil {
		return fmt.Errorf("pivot_root to %s: %w", root, err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("enter the new root: %w", err)
	}
	if err := unix.Unmount("/mnt", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("drop the old root: %w", err)
	}
	// As under systemd: what is mounted later is seen where /run is mounted as a slave.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	return os.Setenv("PATH", labPath)
}

// mounter does mounts under root until one fails.
type mounter struct {
	root string
	err  error
}

func (m *mounter) mount(source, target, fstype string, flags uintptr, data string) {
	if m.err != nil {
		return
	}
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		m.err = fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
}

func (m *mounter) overlay(r *rootSpec) {
	data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s",
		r.Lower, filepath.Join(r.State, "upper"), filepath.Join(r.State, "work"))
	m.mount("overlay", m.root, "overlay", 0, data)
}

func (m *mounter) at(source, target, fstype string) {
	m.mount(source, m.root+target, fstype, 0, "")
}

func (m *mounter) bind(source, target string) {
	m.mount(source, m.root+target, "", unix.MS_BIND|unix.MS_REC, "")
}

// plugin makes a program a command of docker.
func (m *mounter) plugin(program, command string) {
	if program == "" {
		return
	}
	const dir = "/usr/local/lib/docker/cli-plugins"
	m.mkdir(m.root, dir)
	m.file(dir+"/docker-"+command, "")
	m.bind(program, dir+"/docker-"+command)
}

func (m *mounter) mkdir(under string, names ...string) {
	for _, name := range names {
		if m.err == nil {
			m.err = os.MkdirAll(filepath.Join(under, name), 0o755)
		}
	}
}

func (m *mounter) symlink(to, at string) {
	if m.err != nil {
		return
	}
	if err := os.Symlink(to, m.root+at); err != nil && !errors.Is(err, os.ErrExist) {
		m.err = err
	}
}

// file writes a file in place of one that may be a link to elsewhere.
func (m *mounter) file(at, text string) {
	if m.err != nil {
		return
	}
	if err := os.Remove(m.root + at); err != nil && !errors.Is(err, os.ErrNotExist) {
		m.err = err
		return
	}
	m.err = os.WriteFile(m.root+at, []byte(text), 0o644)
}
