// Command layout makes the managed plugin's root file system of a Debian tree of any architecture, nothing of
// which is run:
//
//	go run ./scripts/layout [-arch arm64] TREE OUT
//
// TREE has Debian's openvswitch-switch, iptables, nftables, kmod and what they depend on; for which package has which file,
// their lists in var/lib/dpkg/info. It takes the programs that the agent and the entry point run, the libraries they load,
// and their licences; the agent and the entry point come from scripts/build-plugin.
package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// programs are where a program may be: in the place that a Debian's alternatives give it, or, in packages that are only
// unpacked, in its own.
var programs = [][]string{
	{"usr/sbin/ovs-vswitchd", "usr/lib/openvswitch-switch/ovs-vswitchd"},
	{"usr/sbin/ovsdb-server"},
	{"usr/bin/ovsdb-tool"},
	{"usr/bin/ovs-vsctl"},
	{"usr/bin/ovs-ofctl"},
	{"usr/bin/ovs-appctl"},
	{"usr/bin/ovs-dpctl"},
	{"usr/sbin/xtables-nft-multi"},
	{"usr/sbin/xtables-legacy-multi"},
	{"usr/sbin/nft"},
	{"usr/bin/kmod"},
	{"usr/bin/sh"},
	{"usr/bin/mount"},
	{"usr/bin/mkdir"},
	{"usr/bin/cat"},
	{"usr/bin/ls"},
}

// files are where another file may be.
var files = [][]string{
	{"usr/share/openvswitch/vswitch.ovsschema"},
	{"etc/passwd", "usr/share/base-passwd/passwd.master"},
	{"etc/group", "usr/share/base-passwd/group.master"},
	{"etc/os-release", "usr/lib/os-release"},
	{"etc/protocols"},
}

// dirs are empty in the plugin, or hold links; what is mounted comes there.
var dirs = []string{
	"usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "usr/libexec", "etc", "var/lib", "run",
	"host/run", "host/var-lib", "host/lib",
}

// links are the agent's paths, which are the host's: plugin.json mounts it under /host.
var links = map[string]string{
	"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64",
	"usr/sbin/modprobe": "../bin/kmod",
	"run/docker.sock":   "/host/run/docker.sock",
	"run/docker/netns":  "/host/run/docker/netns",
	"run/openvswitch":   "/host/run/openvswitch",
	"run/grapevine":     "/host/run/grapevine",
	"run/xtables.lock":  "/host/run/xtables.lock",
	"var/lib/grapevine": "/host/var-lib/grapevine",
	"usr/lib/modules":   "/host/lib/modules",
	"var/run":           "/run",
}

// iptables are the programs of one framework; the entry point puts that of the host's own rules into PATH.
var iptables = []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"}

// machines are the architectures by Debian's names, which are Go's.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

func main() {
	arch := flag.String("arch", runtime.GOARCH, "the architecture of the tree, amd64 or arm64")
	flag.Parse()
	if flag.NArg() != 2 || machines[*arch] == elf.EM_NONE {
		fmt.Fprintln(os.Stderr, "usage: layout [-arch amd64|arm64] TREE OUT")
		os.Exit(2)
	}
	l := layout{tree: flag.Arg(0), out: flag.Arg(1), machine: machines[*arch], taken: map[string]bool{}, made: map[string]bool{}}
	if err := l.make(); err != nil {
		fmt.Fprintf(os.Stderr, "layout: make the plugin's root file system of %s: %v\n", l.tree, err)
		os.Exit(1)
	}
}

type layout struct {
	tree, out string
	machine   elf.Machine
	taken     map[string]bool // files of the tree, by paths with no link in them
	made      map[string]bool // files of the plugin
}

func (l *layout) make() error {
	for _, dir := range dirs {
		if err := os.MkdirAll(filepath.Join(l.out, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(l.out, "tmp"), 0o777); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Join(l.out, "tmp"), 0o777|fs.ModeSticky); err != nil {
		return err
	}
	for _, places := range programs {
		if err := l.program(places); err != nil {
			return err
		}
	}
	if err := l.modules(); err != nil {
		return err
	}
	for _, places := range files {
		from, err := l.find(places)
		if err != nil {
			return err
		}
		if err := l.copy(from, places[0]); err != nil {
			return err
		}
	}
	if err := l.links(); err != nil {
		return err
	}
	return l.licences()
}

// program takes a program, and what it loads.
func (l *layout) program(places []string) error {
	from, err := l.find(places)
	if err != nil {
		return err
	}
	return l.binary(from, places[0])
}

// modules takes those of iptables, which it opens by name.
func (l *layout) modules() error {
	list, err := filepath.Glob(filepath.Join(l.tree, "usr/lib/*/xtables/*.so"))
	if err != nil || len(list) == 0 {
		return errors.Join(errors.New("there are no modules of iptables (usr/lib/*/xtables)"), err)
	}
	for _, file := range list {
		name, err := filepath.Rel(l.tree, file)
		if err != nil {
			return err
		}
		from, err := l.resolve(name)
		if err != nil {
			return err
		}
		if err := l.binary(from, name); err != nil {
			return err
		}
	}
	return nil
}

// binary copies an ELF file, and what it loads.
func (l *layout) binary(from, to string) error {
	if l.made[to] {
		return nil
	}
	l.made[to] = true
	if err := l.copy(from, to); err != nil {
		return err
	}
	f, err := elf.Open(filepath.Join(l.tree, from))
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	defer func() { _ = f.Close() }()
	if f.Machine != l.machine {
		return fmt.Errorf("%s is for %s, not for %s", from, f.Machine, l.machine)
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b := make([]byte, p.Filesz)
			if _, err := p.ReadAt(b, 0); err != nil {
				return fmt.Errorf("%s: %w", from, err)
			}
			libraries = append(libraries, strings.TrimRight(string(b), "\x00"))
		}
	}
	runpath, err := f.DynString(elf.DT_RUNPATH)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	for _, library := range libraries {
		if strings.HasPrefix(library, "ld-linux") {
			continue // the loader: programs name it by its path
		}
		if err := l.library(from, library, runpath); err != nil {
			return err
		}
	}
	return nil
}

// library takes one that user names, by its path or its name alone.
func (l *layout) library(user, name string, runpath []string) error {
	if path.IsAbs(name) {
		from, err := l.resolve(name)
		if err != nil {
			return fmt.Errorf("%s wants %s: %w", user, name, err)
		}
		// Where /lib is a link to usr/lib, as it is in the plugin.
		return l.binary(from, path.Join("usr", strings.TrimPrefix(strings.TrimPrefix(name, "/usr"), "/")))
	}
	at, err := filepath.Glob(filepath.Join(l.tree, "usr/lib/*-linux-gnu"))
	if err != nil {
		return err
	}
	for _, dir := range slices.Concat(runpath, at, []string{filepath.Join(l.tree, "usr/lib")}) {
		in := path.Join(strings.TrimPrefix(dir, l.tree), name)
		if from, err := l.resolve(in); err == nil {
			return l.binary(from, strings.TrimPrefix(in, "/"))
		}
	}
	return fmt.Errorf("%s wants the library %s, which no package here has", user, name)
}

// find returns the first of these paths that is there, with no link in it.
func (l *layout) find(places []string) (string, error) {
	for _, p := range places {
		if from, err := l.resolve(p); err == nil {
			return from, nil
		}
	}
	return "", fmt.Errorf("there is no %s", strings.Join(places, ", nor "))
}

// resolve follows the links of a path of the tree, whose root is the tree.
func (l *layout) resolve(name string) (string, error) {
	done, rest := "", strings.Split(strings.Trim(path.Clean("/"+name), "/"), "/")
	for hops := 0; len(rest) > 0; {
		at := path.Join(done, rest[0])
		info, err := os.Lstat(filepath.Join(l.tree, at))
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done, rest = at, rest[1:]
			continue
		}
		to, err := os.Readlink(filepath.Join(l.tree, at))
		if err != nil {
			return "", err
		}
		if hops++; hops > 40 {
			return "", fmt.Errorf("%s: too many links", name)
		}
		if path.IsAbs(to) {
			done = ""
		}
		// Clean leaves nothing above the root.
		whole := path.Clean("/" + path.Join(done, to, path.Join(rest[1:]...)))
		done, rest = "", strings.Split(strings.Trim(whole, "/"), "/")
	}
	return done, nil
}

// copy copies one file; what was a link on the way is a file.
func (l *layout) copy(from, to string) error {
	source, target := filepath.Join(l.tree, from), filepath.Join(l.out, to)
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	l.taken[from] = true
	return errors.Join(os.WriteFile(target, b, info.Mode().Perm()), os.Chmod(target, info.Mode().Perm()))
}

func (l *layout) links() error {
	all := map[string]string{}
	for at, to := range links {
		all[at] = to
	}
	for _, kind := range []string{"nft", "legacy"} {
		for _, name := range iptables {
			all["usr/libexec/iptables-"+kind+"/"+name] = "../../sbin/xtables-" + kind + "-multi"
		}
		for _, name := range []string{"iptables", "ip6tables"} { // who looks for what drops packets reads both
			all["usr/sbin/"+name+"-"+kind+"-save"] = "xtables-" + kind + "-multi"
		}
	}
	for at, to := range all {
		if err := os.MkdirAll(filepath.Join(l.out, filepath.Dir(at)), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(to, filepath.Join(l.out, at)); err != nil {
			return err
		}
	}
	return nil
}

// licences takes those of the packages of which something was taken.
func (l *layout) licences() error {
	lists, err := filepath.Glob(filepath.Join(l.tree, "var/lib/dpkg/info/*.list"))
	if err != nil || len(lists) == 0 {
		return errors.Join(errors.New("it has no lists of its packages' files (var/lib/dpkg/info)"), err)
	}
	for _, file := range lists {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if !l.tookOf(b) {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".list"), ":")
		licence := path.Join("usr/share/doc", name, "copyright")
		from, err := l.resolve(licence)
		if err != nil {
			return fmt.Errorf("the licence of %s: %w", name, err)
		}
		if err := l.copy(from, licence); err != nil {
			return err
		}
	}
	return nil
}

func (l *layout) tookOf(list []byte) bool {
	for line := range bytes.Lines(list) {
		if from, err := l.resolve(string(bytes.TrimSpace(line))); err == nil && l.taken[from] {
			return true
		}
	}
	return false
}
