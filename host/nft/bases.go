package nft

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Bases are the tables of a family that have a chain at a hook, in order of their names: the only ones that do something to packets.
func (c *Conn) Bases(family byte) (tables []string, err error) {
	chains, err := c.all(family, unix.NFT_MSG_GETCHAIN)
	for _, attrs := range chains {
		if table := name(attrs, unix.NFTA_CHAIN_TABLE); chainOf(attrs).Base && !slices.Contains(tables, table) {
			tables = append(tables, table)
		}
	}
	slices.Sort(tables)
	return tables, err
}
