package lab

import (
	"context"
	"syscall"
	"time"
)

const (
	dockerSocket = "/run/docker.sock"
	dockerWait   = 60 * time.Second
	// Image is the containers' image: busybox and iperf3; it serves its host name
	// over HTTP on port 80.
	Image = "lab"
)

// StartDocker starts dockerd, which starts its own containerd, and waits until
// it answers.
func (h *Host) StartDocker(ctx context.Context) error {
	argv := []string{"dockerd"}
	if !h.lab.opts.Swarm {
		argv = append(argv, "--live-restore")
	}
	if h.lab.opts.Kind == Namespace {
		// The machine's cgroups are shared: ours are found again, and removed.
		argv = append(argv, "--cgroup-parent", "/"+h.cgroup())
	}
	if err := h.Start(ctx, "dockerd", nil, argv...); err != nil {
		return err
	}
	return h.AwaitDocker(ctx)
}

// AwaitDocker waits until Docker answers.
func (h *Host) AwaitDocker(ctx context.Context) error {
	return h.await(ctx, "dockerd", dockerSocket, "/_ping", dockerWait)
}

// StopDocker stops dockerd as a service manager does; containers go on.
func (h *Host) StopDocker(ctx context.Context) error {
	return h.Stop(ctx, "dockerd", syscall.SIGTERM, 30*time.Second)
}

// KillDocker kills dockerd -9; containers and containerd go on.
func (h *Host) KillDocker(ctx context.Context) error {
	return h.Stop(ctx, "dockerd", syscall.SIGKILL, 5*time.Second)
}

func (h *Host) loadImage(ctx context.Context) error {
	_, err := h.Docker(ctx, "load", "--quiet", "--input", shareMount+"/image.tar")
	return err
}
