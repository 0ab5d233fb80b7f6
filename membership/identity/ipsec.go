package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ToldFile is the name of the file with the IDs of the keys that strongSwan has been given in the state directory.
const ToldFile = "ipsec.told"

// IPsecTold keeps which of this host's keys strongSwan has been given. The file is there before strongSwan is told anything, and
// goes when that has ended: without it nothing of strongSwan's is the agent's.
type IPsecTold struct{ Dir string }

// Load returns their IDs. There are none where strongSwan was told nothing.
func (t IPsecTold) Load() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(t.Dir, ToldFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read what strongSwan was told: %w", err)
	}
	return strings.Fields(string(text)), nil
}

// Save notes them, durably; of none nothing is left.
func (t IPsecTold) Save(keys []string) error {
	name := filepath.Join(t.Dir, ToldFile)
	if len(keys) > 0 {
		return writeFile(name, []byte(strings.Join(keys, "\n")+"\n"))
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("note that strongSwan is told nothing any more: %w", err)
	}
	return nil
}

// IPsecFile is the name of the file with this host's private key for IPsec in the state directory.
const IPsecFile = "ipsec.key"

// LoadIPsec reads this host's private key for IPsec (ECDSA on P-256, which FIPS 186-5 has) in the state directory. At the
// first start it makes one, for root's eyes only (0600), which is durable on return. A damaged one is an error, and not
// replaced: the other hosts know it.
func LoadIPsec(dir string) (*ecdsa.PrivateKey, error) {
	name := filepath.Join(dir, IPsecFile)
	text, err := readSecret(name, "IPsec")
	if errors.Is(err, fs.ErrNotExist) {
		return createIPsec(name)
	}
	if err != nil {
		return nil, err
	}
	if block, _ := pem.Decode(text); block != nil {
		if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			if e, is := key.(*ecdsa.PrivateKey); is && e.Curve == elliptic.P256() {
				return e, nil
			}
		}
	}
	return nil, fmt.Errorf("this host's IPsec key %s is damaged: remove it, and the agent makes another one at its next start", name)
}

func createIPsec(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key for IPsec: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make a key for IPsec: %w", err)
	}
	return key, writeFile(name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}
