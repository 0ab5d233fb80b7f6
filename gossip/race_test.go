//go:build race

package gossip

func init() { raced = true }
