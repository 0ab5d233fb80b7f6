package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"
)

const (
	containerdSocket = "/run/containerd/containerd.sock"
	dockerSocket     = "/run/docker.sock"
	// Image is the containers' image: busybox and iperf3; it serves its host name
	// over HTTP on port 80.
	Image = "lab"
)

// dockerWait is how long Docker may take to answer: without an agent it looks for one 15 s at each call.
func dockerWait() time.Duration {
	if InGuest() {
		return 15 * time.Minute
	}
	return 4 * time.Minute
}

// containerdConfig leaves out what Docker does not use and a slow host waits for.
const containerdConfig = `version = 2
disabled_plugins = [
  "io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.tracing.processor.v1.otlp",
]
`

// startContainerd starts containerd as a service of its own, as distributions do.
func startContainerd(ctx context.Context, h *Host) error {
	if running, err := h.Running(ctx, "containerd"); err != nil || running {
		return err
	}
	if _, err := h.ExecInput(ctx, []byte(containerdConfig), "sh", "-c", "cat > /run/containerd.toml"); err != nil {
		return err
	}
	if err := h.Start(ctx, "containerd", nil, "containerd", "--config", "/run/containerd.toml"); err != nil {
		return err
	}
	return h.await(ctx, "containerd", containerdSocket, "", dockerWait())
}

// StartDocker starts dockerd (and before it containerd, unless it runs) and waits
// until it answers.
func (h *Host) StartDocker(ctx context.Context) error {
	if err := startDockerd(ctx, h); err != nil {
		return err
	}
	return h.AwaitDocker(ctx)
}

func startDockerd(ctx context.Context, h *Host) error {
	if err := startContainerd(ctx, h); err != nil {
		return err
	}
	argv := []string{"dockerd", "--containerd", containerdSocket, "--insecure-registry", Registry}
	if !h.lab.opts.Swarm {
		argv = append(argv, "--live-restore")
	}
	if h.lab.opts.BridgeIPv6 {
		argv = append(argv, "--ipv6", "--fixed-cidr-v6", "fd00:70::/64")
	}
	if h.lab.opts.Kind == Namespace {
		// The machine's cgroups are shared: ours are found again, and removed.
		argv = append(argv, "--cgroup-parent", "/"+h.cgroup())
	}
	return h.Start(ctx, "dockerd", nil, argv...)
}

// AwaitDocker waits until Docker answers. An error has what its goroutines in libnetwork do.
func (h *Host) AwaitDocker(ctx context.Context) error {
	err := h.await(ctx, "dockerd", dockerSocket, "/_ping", dockerWait())
	if err != nil {
		err = errors.Join(err, fmt.Errorf("dockerd's goroutines:\n%s", dockerStacks(ctx, h, "libnetwork")))
	}
	return err
}

// dockerStacks lets dockerd write its stacks to a file, and returns those with a function.
func dockerStacks(ctx context.Context, h *Host, function string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := h.Stop(ctx, "dockerd", syscall.SIGUSR1, time.Second); err == nil {
		return "it has ended"
	}
	out, err := h.Exec(ctx, "sh", "-c", "cat /run/docker/goroutine-stacks-*.log")
	if err != nil {
		return err.Error()
	}
	return stacksWith(out, function)
}

// StopDocker stops dockerd as a service manager does; containers go on.
func (h *Host) StopDocker(ctx context.Context) error {
	return h.Stop(ctx, "dockerd", syscall.SIGTERM, 30*time.Second)
}

// KillDocker kills dockerd -9; containers and containerd go on.
func (h *Host) KillDocker(ctx context.Context) error {
	return h.Stop(ctx, "dockerd", syscall.SIGKILL, 5*time.Second)
}

// AskDocker is a GET of Docker's API, which costs a fraction of what the docker command does, and of which version the
// engine likes best: it is for what scripts have to know, and not for what they test. The answer goes into v.
func AskDocker(ctx context.Context, h *Host, path string, v any) error {
	last, body, _, err := h.machine.server().do(ctx, request{Op: opAsk, Name: "docker", Unix: dockerSocket, Path: path})
	if err != nil {
		return err
	}
	if last.Exit != http.StatusOK {
		var said struct{ Message string }
		_ = json.Unmarshal([]byte(body), &said) // what else it may be stands there as well
		return fmt.Errorf("%s: Docker answers %d: %s", h.Name, last.Exit, cmp.Or(said.Message, body))
	}
	if err := json.Unmarshal([]byte(body), v); err != nil {
		return fmt.Errorf("%s: read what Docker answers: %w", h.Name, err)
	}
	return nil
}

func loadImage(ctx context.Context, h *Host) error {
	_, err := h.Docker(ctx, "load", "--quiet", "--input", shareMount+"/image.tar")
	return err
}
