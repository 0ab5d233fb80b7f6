package identity

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// sealVersion is that of the small files of the state directory. Those of before there was
// one have neither version nor sum, and are read.
const sealVersion = 1

// seals are the fields that a file has beside those of its content.
type seals struct {
	Version int `json:"version"`
	// Sum is the start of the SHA-256 of the other fields, known or not, by name.
	Sum string `json:"sum"`
}

var errDamaged = errors.New("its content and its checksum differ")

// seal encodes a struct as a JSON object, with seals. Older agents read it as well.
func seal(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	total, err := sum(raw)
	if err != nil {
		return nil, err
	}
	with := fmt.Appendf(bytes.TrimSuffix(raw, []byte("}")), `,"version":%d,"sum":%q}`, sealVersion, total)
	var text bytes.Buffer
	if err := json.Indent(&text, with, "", "  "); err != nil {
		return nil, err
	}
	return append(text.Bytes(), '\n'), nil
}

// unseal decodes what seal made, or a file of before: whatever differs from what was written
// is an error, but for space between its parts.
func unseal(data []byte, v any) error {
	var s seals
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if s == (seals{}) {
		d.DisallowUnknownFields() // such as a field's name with a bit flipped
	}
	if err := d.Decode(v); err != nil {
		return err
	}
	if s.Version > sealVersion {
		return fmt.Errorf("it has version %d, and this agent reads up to %d: run the newer one again", s.Version, sealVersion)
	}
	total, err := sum(data)
	if err == nil && s != (seals{}) && s != (seals{sealVersion, total}) {
		return errDamaged
	}
	return err
}

func sum(data []byte) (string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return "", err
	}
	delete(fields, "version")
	delete(fields, "sum")
	all, err := json.Marshal(fields)
	h := sha256.Sum256(all)
	return hex.EncodeToString(h[:8]), err
}
