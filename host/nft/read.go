package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Generation returns the number of the nf_tables ruleset of the connection's namespace, which the
// kernel raises at every commit (NFT_MSG_GETGEN of linux/netfilter/nf_tables.h).
func (c *Conn) Generation() (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body := []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0}
	replies, err := c.dump(message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, unix.NLM_F_ACK, body))
	if err != nil {
		return 0, fmt.Errorf("ask for the nf_tables generation: %w", err)
	}
	for _, attrs := range replies {
		if id := attribute(attrs, unix.NFTA_GEN_ID); len(id) == 4 {
			return binary.BigEndian.Uint32(id), nil
		}
	}
	return 0, errors.New("the kernel tells no nf_tables generation")
}

// Elements are the keys of a set's elements, in no order. A set that is not there has none.
func (c *Conn) Elements(t Table, set string) (keys [][]byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body := []byte{t.Family, unix.NFNETLINK_V0, 0, 0}
	body = append(body, text(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name).Serialize()...)
	body = append(body, text(unix.NFTA_SET_ELEM_LIST_SET, set).Serialize()...)
	replies, err := c.dump(message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, body))
	if err != nil && !errors.Is(err, errChanged) {
		return nil, fmt.Errorf("read the set %s of table %s: %w", set, t.Name, err)
	}
	for _, attrs := range replies {
		for e := range attributes(attribute(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
			if key := attribute(attribute(e, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE); key != nil {
				keys = append(keys, key)
			}
		}
	}
	return keys, nil
}

// Pairs are the keys of a map's elements and what each leads to. A map that is not there has none.
func (c *Conn) Pairs(t Table, set string) (map[string][]byte, error) {
	list, err := c.elements(t.Family, t.Name, set)
	if err != nil && !errors.Is(err, errChanged) {
		return nil, fmt.Errorf("read the map %s of table %s: %w", set, t.Name, err)
	}
	pairs := map[string][]byte{}
	for _, e := range list {
		pairs[string(e.Key)] = attribute(e.Data, unix.NFTA_DATA_VALUE)
	}
	return pairs, nil
}
