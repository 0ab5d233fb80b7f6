package lab

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
)

// imageCommand serves the container's host name over HTTP.
const imageCommand = "hostname > /www/index.html; exec httpd -f -p 80 -h /www"

// writeImage writes the containers' image as `docker load` reads it (Docker image
// specification v1.2): one layer with busybox, iperf3 and the libraries they need.
func writeImage(file string) error {
	image, err := image()
	if err != nil {
		return fmt.Errorf("make the containers' image: %w", err)
	}
	return os.WriteFile(file, image, 0o644)
}

// image is the same for all labs of a process.
var image = sync.OnceValues(func() ([]byte, error) {
	layer, err := imageLayer()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{
			"Cmd":        []string{"sh", "-c", imageCommand},
			"Env":        []string{"PATH=/bin"},
			"StopSignal": "SIGKILL", // as PID 1 it would ignore SIGTERM for 10 s
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": "config.json", "RepoTags": []string{Image + ":latest"}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return nil, err
	}
	a := newArchive()
	a.file("config.json", config, 0o644)
	a.file("layer.tar", layer, 0o644)
	a.file("manifest.json", manifest, 0o644)
	return a.bytes()
})

func imageLayer() ([]byte, error) {
	a := newArchive()
	for _, dir := range []string{"bin", "etc", "lib", "lib64", "tmp", "www"} {
		a.dir(dir)
	}
	a.file("etc/passwd", []byte("root:x:0:0:root:/:/bin/sh\n"), 0o644)
	applets, err := exec.Command("busybox", "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("busybox (scripts/setup installs it): %w", err)
	}
	for _, applet := range strings.Fields(string(applets)) {
		if applet != "busybox" {
			a.link("bin/"+applet, "busybox")
		}
	}
	added := map[string]bool{}
	for _, program := range []string{"busybox", "iperf3"} {
		path, err := exec.LookPath(program)
		if err != nil {
			return nil, fmt.Errorf("%s is missing: run scripts/setup: %w", program, err)
		}
		if err := a.program("bin/"+program, path, added); err != nil {
			return nil, err
		}
	}
	return a.bytes()
}

// library matches the lines of ldd(1): "libc.so.6 => /lib/.../libc.so.6 (0x...)" and
// "/lib64/ld-linux-x86-64.so.2 (0x...)".
var library = regexp.MustCompile(`(?m)^\s*(?:\S+ => )?(/\S+) \(0x`)

// program adds a file and, under their own paths, the libraries it is linked with.
func (a *archive) program(as, path string, added map[string]bool) error {
	out, _ := exec.Command("ldd", path).Output() // fails for a static program, which needs none
	files := [][2]string{{as, path}}
	for _, m := range library.FindAllSubmatch(out, -1) {
		files = append(files, [2]string{strings.TrimPrefix(string(m[1]), "/"), string(m[1])})
	}
	for _, f := range files {
		if added[f[0]] {
			continue
		}
		added[f[0]] = true
		data, err := os.ReadFile(f[1])
		if err != nil {
			return err
		}
		a.file(f[0], data, 0o755)
	}
	return nil
}

// archive is a tar file in memory; the first error stays.
type archive struct {
	buf bytes.Buffer
	tar *tar.Writer
	err error
}

func newArchive() *archive {
	a := &archive{}
	a.tar = tar.NewWriter(&a.buf)
	return a
}

func (a *archive) add(h tar.Header, data []byte) {
	if a.err != nil {
		return
	}
	h.Size = int64(len(data))
	if a.err = a.tar.WriteHeader(&h); a.err == nil {
		_, a.err = a.tar.Write(data)
	}
}

func (a *archive) dir(name string) {
	a.add(tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
}

func (a *archive) file(name string, data []byte, mode fs.FileMode) {
	a.add(tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: int64(mode)}, data)
}

func (a *archive) link(name, to string) {
	a.add(tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777}, nil)
}

func (a *archive) bytes() ([]byte, error) {
	if a.err == nil {
		a.err = a.tar.Close()
	}
	return a.buf.Bytes(), a.err
}
