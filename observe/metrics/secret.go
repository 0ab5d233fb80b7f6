package metrics

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"
)

// Secret is the token in a file, which may be changed at any time. Its methods may be called
// concurrently.
type Secret struct {
	file string
	may  bool

	mu    sync.Mutex
	seen  fs.FileInfo // of when the file was read, nil if it is to be read again
	token string
	err   error
}

// NewSecret is the token in the file; may: if there is none, one is made that root alone can read.
func NewSecret(file string, may bool) *Secret { return &Secret{file: file, may: may} }

// settled is how old a file is that can have been written again only with another date on it.
const settled = 2 * time.Second

// Token returns the token that the file has now, which is read only when it has changed.
func (s *Secret) Token() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := os.Stat(s.file)
	if err == nil && s.seen != nil && os.SameFile(now, s.seen) && now.ModTime().Equal(s.seen.ModTime()) && now.Size() == s.seen.Size() {
		return s.token, s.err
	}
	s.seen = nil
	if err == nil && time.Since(now.ModTime()) > settled {
		s.seen = now
	}
	s.token, s.err = s.read()
	return s.token, s.err
}

func (s *Secret) read() (string, error) {
	text, err := os.ReadFile(s.file)
	// Of our own an empty one is what an older agent left that was killed before it had written.
	if s.may && (errors.Is(err, fs.ErrNotExist) || err == nil && len(bytes.TrimSpace(text)) == 0) {
		return s.make()
	}
	if err != nil {
		return "", fmt.Errorf("read the token for metrics: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if len(token) < minToken || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("the token for metrics in %s is not one word of at least %d characters: openssl rand -hex 32 makes one", s.file, minToken)
	}
	return token, nil
}

// minToken is the least length of a token: 80 bits if it is random letters of base 32.
const minToken = 16

// make makes a token, which is in the file whole or not at all.
func (s *Secret) make() (string, error) {
	token, next := rand.Text(), s.file+".new"
	err := os.Remove(next)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		err = write(next, token+"\n")
	}
	if err == nil {
		err = os.Rename(next, s.file)
	}
	if err != nil {
		_ = os.Remove(next)
		return "", fmt.Errorf("make a token for metrics: %w", err)
	}
	return token, nil
}

func write(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// Exposed says that others on this host than root and a group of root's choice can read or change
// the token.
func (s *Secret) Exposed() error {
	info, err := os.Stat(s.file)
	if err != nil || info.Mode().Perm()&0o027 == 0 {
		return nil
	}
	return fmt.Errorf("the token for metrics, %s, is not for root alone (its mode is %#o)", s.file, info.Mode().Perm())
}
