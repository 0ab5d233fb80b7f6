package store

import (
	"path/filepath"
	"testing"
	"time"
)

func TestAge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	db, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if age := db.Age(); age < 0 || age > time.Minute {
		t.Errorf("a new file has the age %s", age)
	}
	db.before += 100 * time.Hour // has run for so long
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = Open(path); err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if age := db.Age(); age < 100*time.Hour || age > 101*time.Hour {
		t.Errorf("after 100 hours it has the age %s", age)
	}
}
