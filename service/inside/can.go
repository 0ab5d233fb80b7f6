package inside

import (
	"fmt"
	"net/netip"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
	"github.com/grapevine-net/grapevine/service"
)

// Can says why this kernel cannot lead connections to services; nil: it can. It is tried in a network namespace of
// its own, in which nothing else is.
func Can() error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and for good: the thread ends with this goroutine, and its namespace with it
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("make a network namespace: %w", err)
			return
		}
		done <- try()
	}()
	return <-done
}

func try() error {
	conn, err := nft.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	at := netip.MustParseAddr("192.0.2.1")
	to := service.Back{To: []netip.AddrPort{netip.AddrPortFrom(at, 1)}}
	batch, _ := whole(service.Table{{Addr: at, Proto: service.TCP, Port: 1}: to, {Addr: at, Proto: service.ICMP}: to})
	if err := conn.Do(batch); err != nil {
		return fmt.Errorf("make nftables table inet %s, which needs Linux 5.2 with nf_tables: %w", tableName, err)
	}
	return nil
}
