// Package sshkey reads and writes what OpenSSH makes of an Ed25519 key: the line of a public key, its fingerprint, and the
// signatures of `ssh-keygen -Y sign` (PROTOCOL.sshsig of OpenSSH). It knows no private key.
package sshkey

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// Key is a public key.
type Key = [ed25519.PublicKeySize]byte

// kind is what OpenSSH calls such a key.
const kind = "ssh-ed25519"

// Parse reads a public key as it is in a .pub file: "ssh-ed25519 AAAA... comment". An error says what is wrong.
func Parse(line string) (key Key, err error) {
	fields := strings.Fields(line)
	switch {
	case len(fields) == 0:
		return key, errors.New("it is empty")
	case strings.Contains(line, "PRIVATE KEY"):
		return key, errors.New("it is a private key: take the line of the file that ends with .pub")
	case fields[0] != kind && len(fields) > 1:
		return key, fmt.Errorf("%.40q is no Ed25519 key: make one with `ssh-keygen -t ed25519`", fields[0])
	case fields[0] != kind || len(fields) < 2:
		return key, fmt.Errorf("%.40q is no line of a .pub file of `ssh-keygen -t ed25519`, which is ssh-ed25519 AAAA and so on", line)
	}
	blob, err := base64.StdEncoding.DecodeString(fields[1])
	if err != nil {
		return key, fmt.Errorf("what is behind ssh-ed25519 is not base64: %.40q", fields[1])
	}
	name, rest, ok := cut(blob)
	raw, rest, also := cut(rest)
	if !ok || !also || string(name) != kind || len(raw) != len(key) || len(rest) != 0 {
		return key, fmt.Errorf("what is behind ssh-ed25519 is no whole key: %.40q", fields[1])
	}
	return Key(raw), nil
}

// Line is the key as Parse reads it, without a comment.
func Line(key Key) string { return kind + " " + base64.StdEncoding.EncodeToString(blob(key)) }

// Fingerprint is the key as `ssh-keygen -l` shows it.
func Fingerprint(key Key) string {
	sum := sha256.Sum256(blob(key))
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

func blob(key Key) []byte { return put(put(nil, []byte(kind)), key[:]) }

// magic begins what is signed, and a signature.
const magic = "SSHSIG"

// hash is what ssh-keygen takes if it is told nothing.
const hash = "sha512"

// Signed are the bytes over which `ssh-keygen -Y sign -n namespace` makes its signature of a message.
func Signed(namespace string, message []byte) []byte {
	sum := sha512.Sum512(message)
	b := []byte(magic)
	for _, field := range [][]byte{[]byte(namespace), nil, []byte(hash), sum[:]} {
		b = put(b, field)
	}
	return b
}

// ParseSignature reads a file that `ssh-keygen -Y sign` wrote: whose signature it is, and the signature of Signed.
func ParseSignature(text []byte, namespace string) (key Key, signature []byte, err error) {
	p, _ := pem.Decode(text)
	if p == nil || p.Type != "SSH SIGNATURE" {
		return key, nil, errors.New("it is no signature of ssh-keygen")
	}
	b, ok := bytes.CutPrefix(p.Bytes, []byte(magic))
	if !ok || len(b) < 4 || binary.BigEndian.Uint32(b) != 1 {
		return key, nil, errors.New("it is of another version of ssh-keygen")
	}
	var fields [5][]byte // key, namespace, reserved, hash, signature
	b = b[4:]
	for i := range fields {
		if fields[i], b, ok = cut(b); !ok {
			return key, nil, errors.New("it is cut short")
		}
	}
	if key, err = Parse(kind + " " + base64.StdEncoding.EncodeToString(fields[0])); err != nil {
		return key, nil, errors.New("it was made with a key of another kind: make one with `ssh-keygen -t ed25519`")
	}
	name, rest, ok := cut(fields[4])
	signature, rest, also := cut(rest)
	switch {
	case string(fields[1]) != namespace || string(fields[3]) != hash:
		return key, nil, fmt.Errorf("it is for %.40q with %.40q", fields[1], fields[3])
	case !ok || !also || string(name) != kind || len(signature) != ed25519.SignatureSize || len(rest) != 0:
		return key, nil, errors.New("it is cut short")
	}
	return key, signature, nil
}

// put appends a field with its length, as RFC 4251 has them.
func put(b, field []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(field))), field...)
}

func cut(b []byte) (field, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := binary.BigEndian.Uint32(b)
	if b = b[4:]; uint64(n) > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}
