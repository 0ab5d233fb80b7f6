package lab

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// The lab starts its own program again in these roles.
const (
	roleVar    = "GVLAB_ROLE"
	roleBox    = "box"    // first process of a namespace box
	roleUML    = "uml"    // first process of a UML kernel
	roleGuest  = "guest"  // first process of a guest
	roleServer = "server" // runs the commands of a box
	rolePing   = "ping"   // see ping.go
	roleWeb    = "web"    // the outside's HTTP server
	roleFetch  = "fetch"  // gets an URL
	roleNames  = "names"  // a name server
	roleAsk    = "ask"    // asks a name server: a server does it by itself, see inside.go
	roleLoad   = "load"   // asks one again and again
	roleRate   = "rate"   // transactions and connections a second
	roleRace   = "race"   // connects as soon as a name is answered
	roleScan   = "scan"   // many connections, see scan.go
	roleLate   = "late"   // what is sent when, see late.go
	roleCast   = "cast"   // multicast and broadcast, see cast.go

	roleWitness = "witness" // see witness.go
	roleFlood   = "flood"
	roleDeluge  = "deluge" // see deluge.go
	roleSurvey  = "survey" // see survey.go
	roleStale   = "stale"  // see stale.go

	roleWireGuard = "wireguard" // see wireguard.go
	roleLaptop    = "laptop"    // see laptop.go
	roleOverhear  = "overhear"  // see overhear.go
)

const (
	specVar    = "GVLAB_SPEC" // JSON of boxSpec, or for roleUML the name of a file with it
	listenerFD = 3            // of roleBox and roleServer
	lifelineFD = 4            // of roleBox: ends when the lab's owner does
)

// Init does the work of a lab's own process, if this is one, and then exits. In
// the program that a user started it returns at once.
func Init() {
	role := os.Getenv(roleVar)
	if role == "" {
		return
	}
	_ = os.Unsetenv(roleVar)
	var err error
	switch role {
	case roleBox:
		err = boxMain()
	case roleUML:
		err = umlMain()
	case roleGuest:
		err = guestMain()
	case roleServer:
		err = serverMain()
	case rolePing:
		err = pingMain(os.Args[1:])
	case roleWeb:
		err = webMain(os.Args[1:]...)
	case roleFetch:
		err = fetchMain(os.Args[1])
	case roleNames:
		err = namesMain(os.Args[1:])
	case roleLate:
		err = lateMain(os.Args[1:])
	case roleRate:
		err = rateMain(os.Args[1:])
	case roleRace:
		err = raceMain(os.Args[1:])
	case roleScan:
		err = scanMain(os.Args[1:])
	case roleCast:
		err = castMain(os.Args[1:])
	case roleWitness:
		err = witnessMain(os.Args[1:])
	case roleFlood:
		err = floodMain(os.Args[1:])
	case roleDeluge:
		err = delugeMain(os.Args[1:])
	case roleSurvey:
		err = surveyMain(os.Args[1:])
	case roleStale:
		err = staleMain(os.Args[1:])
	case roleLoad:
		err = loadMain(os.Args[1:])
	case roleWireGuard:
		err = wireguardMain(os.Args[1:])
	case roleLaptop:
		err = laptopMain(os.Args[1:])
	case roleOverhear:
		err = overhearMain(os.Args[1:])
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "lab %s: %v\n", role, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// boxSpec is what the first process of a box sets up.
type boxSpec struct {
	Hostname string
	Root     *rootSpec // nil: the machine's files as they are
	Net      netSpec
	Env      []string // of all that runs in it, besides
	Meter    string   // see cpu.go
}

// boxMain is PID 1 of a namespace box: it sets the box up, starts the server and
// reaps. When the lab's owner is gone it exits, and the kernel ends the rest.
func boxMain() error {
	var spec boxSpec
	if err := json.Unmarshal([]byte(os.Getenv(specVar)), &spec); err != nil {
		return fmt.Errorf("read the box's description: %w", err)
	}
	_ = os.Unsetenv(specVar)
	go lifeline()
	joinMeter(spec.Meter)
	if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := spec.Root.enter(); err != nil {
		return err
	}
	if err := spec.Net.apply(); err != nil {
		return err
	}
	listener := os.NewFile(listenerFD, "listener")
	return serveAndReap(listener)
}

// lifeline exits when the owner's end of the pipe closes, unless the owner wrote
// a byte first: then the box is to stay.
func lifeline() {
	if n, _ := os.NewFile(lifelineFD, "lifeline").Read(make([]byte, 1)); n == 0 {
		os.Exit(1)
	}
}

// serveAndReap starts the server as a child of its own (it waits for its commands
// by their PIDs, which a reaper of everything would steal) and reaps what is
// orphaned until the server ends.
func serveAndReap(listener *os.File) error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVar+"="+roleServer)
	cmd.ExtraFiles = []*os.File{listener}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid == cmd.Process.Pid {
			return fmt.Errorf("the server ended")
		}
	}
}

func serverMain() error {
	file := os.NewFile(listenerFD, "listener")
	l, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("take over the listener: %w", err)
	}
	unix.CloseOnExec(listenerFD)
	return serve(l)
}
