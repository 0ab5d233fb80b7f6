package nat

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/coreos/go-iptables/iptables"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/grapevine-net/grapevine/host/nft"
)

// iptables on nf_tables makes a table with the first rule in it, and never removes one. Docker makes those of IPv4, and
// of IPv6 only if it is told to. So it is noted which tables there were not before the agent, in a file that goes
// with the boot as they do. Of these the empty ones go with our rules.

// Tables is that file.
type Tables string

var tableNames = []string{"filter", "nat", "mangle", "raw"}

// Note notes which tables there are not yet, if nobody has since the boot.
func (file Tables) Note() error {
	if _, err := os.Stat(string(file)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := Generation(); err != nil {
		return nil //nolint:nilerr // this kernel has no nf_tables
	}
	var absent []string
	for _, f := range families {
		for _, name := range tableNames {
			there, err := hasTable(f, name)
			if err != nil {
				return fmt.Errorf("look for the table %s of %s: %w", name, command(f), err)
			}
			if !there {
				absent = append(absent, command(f)+" "+name+"\n")
			}
		}
	}
	if err := os.WriteFile(string(file), []byte(strings.Join(absent, "")), 0o600); err != nil {
		return fmt.Errorf("note which tables of iptables there are not: %w", err)
	}
	return nil
}

// Clear removes the tables that were not there and in which nothing is, and the file. It returns what it has removed.
func (file Tables) Clear() (gone []string, err error) {
	text, err := os.ReadFile(string(file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which tables of iptables there were not: %w", err)
	}
	var errs []error
	for _, f := range families {
		for _, name := range tableNames {
			if !slices.Contains(strings.Split(string(text), "\n"), command(f)+" "+name) {
				continue
			}
			removed, err := removeEmpty(f, name)
			if err != nil {
				errs = append(errs, fmt.Errorf("remove the empty table %s of %s: %w", name, command(f), err))
			}
			if removed {
				gone = append(gone, command(f)+" table "+name)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return gone, err
	}
	return gone, os.Remove(string(file))
}

// removeEmpty removes a table in which nothing is, unless the rules of this host change meanwhile.
func removeEmpty(f iptables.Protocol, name string) (bool, error) {
	for range 5 {
		now, err := Generation()
		if err != nil {
			return false, err
		}
		if there, err := hasTable(f, name); err != nil || !there {
			return false, err
		}
		table := nft.Table{Name: name, Family: nfFamily(f)}
		if empty, err := nft.Empty(table); err != nil || !empty {
			return false, err
		}
		conn, err := nft.Dial()
		if err != nil {
			return false, err
		}
		err = conn.DoAt(now, table.Remove())
		conn.Close()
		if !errors.Is(err, unix.ERESTART) && !errors.Is(err, unix.EAGAIN) {
			return err == nil, err
		}
	}
	return false, errors.New("the rules of this host do not rest")
}

func nfFamily(f iptables.Protocol) byte {
	if f == iptables.ProtocolIPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

func hasTable(f iptables.Protocol, name string) (bool, error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE, unix.NLM_F_ACK)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: nfFamily(f), Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(unix.NFTA_TABLE_NAME, append([]byte(name), 0)))
	_, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}
