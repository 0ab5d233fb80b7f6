package ovs

import "context"

// Native applies lines without ovs-ofctl.
func (b *Bridge) Native(ctx context.Context, lines []string) error {
	messages, err := encodeBundle(lines)
	if err != nil {
		return err
	}
	return b.sendBundle(ctx, bundleTimeout(len(lines)), messages)
}

// IsNative says whether a line needs no ovs-ofctl.
func IsNative(line string) bool {
	_, err := flowMod(line)
	return err == nil
}
