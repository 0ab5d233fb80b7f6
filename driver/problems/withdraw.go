package problems

import (
	"context"
	"fmt"

	"github.com/grapevine-net/grapevine/driver"
)

// Withdraw removes this host's networks from its Docker, and says for people what hinders that; "": nothing does.
func Withdraw(ctx context.Context, d *driver.Driver) string {
	if d == nil {
		return ""
	}
	if _, err := d.Withdraw(ctx); err != nil {
		return fmt.Sprintf("\nIts networks are still in Docker (%v): remove them with `docker network rm`.", err)
	}
	return ""
}
