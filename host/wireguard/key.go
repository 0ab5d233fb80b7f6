package wireguard

import (
	"crypto/ecdh"
	"encoding/base64"
)

// Key is a key of WireGuard (X25519, RFC 7748).
type Key [32]byte

// String is the key as wg(8) writes it.
func (k Key) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Clamped is the private key as a device says that it has it (RFC 7748, 5): the same key, of which some bits are fixed.
func (k Key) Clamped() Key {
	k[0] &= 248
	k[31] = k[31]&127 | 64
	return k
}

// Public is the public key of a private one.
func (k Key) Public() Key {
	private, err := ecdh.X25519().NewPrivateKey(k[:])
	if err != nil {
		panic(err) // 32 bytes are one
	}
	return Key(private.PublicKey().Bytes())
}
