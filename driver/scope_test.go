package driver

import (
	"context"
	"errors"
	"testing"
)

// What Swarm's managers ask of drivers of global scope is no success here.
func TestLocalScope(t *testing.T) {
	d := rooms(&core{})
	if _, err := d.AllocateNetwork(context.Background(), nil); !errors.Is(err, errLocalScope) {
		t.Errorf("AllocateNetwork: %v", err)
	}
	if _, err := d.FreeNetwork(context.Background(), nil); !errors.Is(err, errLocalScope) {
		t.Errorf("FreeNetwork: %v", err)
	}
}
