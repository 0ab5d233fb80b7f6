package socket

import (
	"fmt"
	"net"
	"os"
)

// Ready tells systemd that a unit of Type=notify has started (sd_notify(3)): what is ordered
// behind it starts now. Without systemd it does nothing.
func Ready() error {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Net: "unixgram", Name: name}) // "@": an abstract one, also for package net
	if err == nil {
		defer conn.Close()
		_, err = conn.Write([]byte("READY=1"))
	}
	if err != nil {
		return fmt.Errorf("tell systemd that the agent has started: %w", err)
	}
	return nil
}
