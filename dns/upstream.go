package dns

import (
	"bufio"
	"bytes"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"
)

// resolvConf is the host's list of servers, read again when the file changes.
type resolvConf struct {
	path string

	mu      sync.Mutex
	checked time.Time
	file    fs.FileInfo
	servers []netip.AddrPort
}

// checkEvery is how long a change of the file may go unseen.
const checkEvery = time.Second

// get returns the servers. A file that is gone for a moment, while another is put
// in its place, leaves them as they are.
func (r *resolvConf) get(now time.Time) []netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.checked) < checkEvery && now.After(r.checked) {
		return r.servers
	}
	r.checked = now
	file, err := os.Stat(r.path)
	if err != nil || r.unchanged(file) {
		return r.servers
	}
	if text, err := os.ReadFile(r.path); err == nil {
		r.file, r.servers = file, nameservers(text)
	}
	return r.servers
}

func (r *resolvConf) unchanged(file fs.FileInfo) bool {
	return r.file != nil && os.SameFile(r.file, file) &&
		r.file.ModTime().Equal(file.ModTime()) && r.file.Size() == file.Size()
}

// nameservers reads resolv.conf(5): what is not an address is left out.
func nameservers(text []byte) (servers []netip.AddrPort) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(words[1]); err == nil {
			servers = append(servers, netip.AddrPortFrom(a, 53))
		}
	}
	return servers
}
