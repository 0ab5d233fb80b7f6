//go:build race

package policy

func init() { raced = true }
