package driver

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/encap"
	"github.com/grapevine-net/grapevine/ipam"
	"github.com/grapevine-net/grapevine/policy/plain"
)

// Keys of CreateNetwork's options that Docker sets itself.
const (
	optGeneric  = "com.docker.network.generic" // map of the -o values
	optInternal = "com.docker.network.internal"
	// optMTU is the name that Docker's own drivers give to the MTU.
	optMTU = "com.docker.network.driver.mtu"
)

// optReplica marks, in `docker network inspect`, what the agent has made: the call that
// comes of it is told by that from a user's for the same network.
const optReplica = "replica"

// Range of MTUs of containers' interfaces: the least that IPv4 hosts must take
// (RFC 791), and jumbo frames.
const (
	minMTU = 576
	maxMTU = 9216
)

// networkOptions are the -o values of docker network create.
type networkOptions struct {
	given      map[string]string // as the user wrote them
	name       string            // "" for the name that Docker has
	vnid       uint32
	hasVNID    bool
	mtu        int // 0: from the underlay
	prefixLen  int // of IPv4; 0: not given
	prefixLen6 int
	hostBits   int
	internal   bool
	isolate    bool
	multicast  bool
	encrypted  bool
	encap      string // "": as all are
	limits     cluster.Limits
	replica    bool // set by the agent when it makes a network of the cluster here
}

// setters read one option each; their keys are all the known options.
var setters = map[string]func(*networkOptions, string) error{
	"name": setName,
	"vnid": setVNID,
	"mtu":  setMTU,
	optMTU: setMTU,
	"prefixlen": func(o *networkOptions, v string) (err error) {
		o.prefixLen, err = ipam.ParseBits("prefixlen", v, 1, 128)
		return
	},
	"prefixlen6": func(o *networkOptions, v string) (err error) {
		o.prefixLen6, err = ipam.ParseBits("prefixlen6", v, 1, 128)
		return
	},
	"hostsubnetlength": func(o *networkOptions, v string) (err error) {
		o.hostBits, err = ipam.ParseBits("hostsubnetlength", v, 0, 24)
		return
	},
	"encap": setEncap,

	cluster.OptEgress:  setLimit(cluster.OptEgress),
	cluster.OptIngress: setLimit(cluster.OptIngress),
	cluster.OptDelay:   setLimit(cluster.OptDelay),
	cluster.OptJitter:  setLimit(cluster.OptJitter),
	cluster.OptLoss:    setLimit(cluster.OptLoss),

	cluster.OptHostIPv4: setHostAddress(cluster.OptHostIPv4),
	cluster.OptHostIPv6: setHostAddress(cluster.OptHostIPv6),

	cluster.EncryptedOption: setEncrypted,
	cluster.IsolateOption:   setIsolate,
	cluster.MulticastOption: setMulticast,
	optReplica:              setReplica,
}

// parseOptions reads CreateNetwork's (or GwAllocCheck's) Options. Unknown -o
// values are an error that lists the known ones; other keys are Docker's and may
// be anything.
func parseOptions(all map[string]any) (networkOptions, error) {
	o := networkOptions{given: map[string]string{}}
	switch v := all[optInternal].(type) {
	case bool:
		o.internal = v
	case string:
		o.internal = v == "true"
	}
	generic, ok := all[optGeneric].(map[string]any)
	if !ok && all[optGeneric] != nil {
		return o, fmt.Errorf("option %s is a %T, not an object", optGeneric, all[optGeneric])
	}
	for key, v := range generic {
		value, ok := v.(string)
		if !ok {
			return o, fmt.Errorf("option %.60q is a %T, not a string", key, v)
		}
		set, known := setters[key]
		if !known {
			return o, fmt.Errorf("option %.60q is unknown; known are %s", key, strings.Join(knownOptions(), ", "))
		}
		if err := set(&o, value); err != nil {
			return o, err
		}
		if key != optReplica {
			o.given[key] = value
		}
	}
	if o.multicast && o.hasVNID && o.vnid == 0 {
		return o, errors.New("options vnid=0 and multicast=on: a network that reaches all others carries no multicast; leave out one of the two")
	}
	return o, nil
}

func knownOptions() []string {
	var names []string
	for name := range setters {
		if name != optMTU && name != optReplica {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func setName(o *networkOptions, v string) error {
	if v == "" || len(v) > 200 || strings.ContainsAny(v, "/ \t\n") {
		return fmt.Errorf("option name=%.60q: must be a network name of 1 to 200 characters, without slashes and blanks", v)
	}
	o.name = v
	return nil
}

func setVNID(o *networkOptions, v string) error {
	n, err := strconv.ParseUint(v, 10, 24)
	if err != nil {
		return fmt.Errorf("option vnid=%.60q: must be a number between 0 and %d; 0 makes a network that reaches all others", v, 1<<24-1)
	}
	o.vnid, o.hasVNID = uint32(n), true
	return nil
}

func setMTU(o *networkOptions, v string) error {
	n, err := strconv.Atoi(v)
	if err != nil || n != 0 && (n < minMTU || n > maxMTU) {
		return fmt.Errorf("option mtu=%.60q: must be a number of bytes between %d and %d, or 0 to take it from the underlay", v, minMTU, maxMTU)
	}
	o.mtu = n
	return nil
}

func setReplica(o *networkOptions, _ string) error {
	o.replica = true
	return nil
}

func setIsolate(o *networkOptions, v string) error {
	if v != "true" && v != "false" {
		return fmt.Errorf("option isolate=%.60q: must be true or false; true makes a network whose members reach only those with the label %s=true", v, plain.OpenLabel)
	}
	o.isolate = v == "true"
	return nil
}

func setMulticast(o *networkOptions, v string) error {
	if v != "on" && v != "off" {
		return fmt.Errorf("option multicast=%.60q: must be on or off; on makes a network that carries multicast and broadcast (docs/use/multicast.md)", v)
	}
	o.multicast = v == "on"
	return nil
}

// setLimit is for one of cluster.LimitOptions. Hosts read the network's options.
func setLimit(name string) func(*networkOptions, string) error {
	return func(o *networkOptions, v string) error {
		if err := o.limits.Set(name, v); err != nil {
			return fmt.Errorf("option %s: %w", name, err)
		}
		return nil
	}
}

// setHostAddress only judges: hosts read the network's options.
func setHostAddress(name string) func(*networkOptions, string) error {
	return func(_ *networkOptions, v string) error {
		_, err := cluster.ParseHostAddress(name, v)
		return err
	}
}

// setEncrypted takes Docker's option of that name. Docker's overlay encrypts whatever its value is; so that nobody believes
// that "false" does not, it is refused.
func setEncrypted(o *networkOptions, v string) error {
	if v != "" && v != "true" {
		return fmt.Errorf("option encrypted=%.60q: must be true, or have no value; leave it out for a network that is not encrypted (docs/use/encryption.md)", v)
	}
	o.encrypted = true
	return nil
}

func setEncap(o *networkOptions, v string) error {
	k, err := encap.Parse(v)
	if err != nil {
		return fmt.Errorf("option encap=%.60q: %w", v, err)
	}
	o.encap = k.Name
	return nil
}

// fitsEncap refuses a network that is to be wrapped in another way than all are.
func (o networkOptions) fitsEncap(have string) error {
	if have = cmp.Or(have, encap.VXLAN.Name); o.encap != "" && o.encap != have && !o.replica {
		return fmt.Errorf("option encap=%s: all networks of a cluster are wrapped in one way, and here that is %s: leave the option out, or set GRAPEVINE_ENCAP=%s on every host", o.encap, have, o.encap)
	}
	return nil
}

// fits says whether the options go with a pool, which is Docker's already when
// the options are seen.
func (o networkOptions) fits(p netip.Prefix) error {
	name, bits := "prefixlen", o.prefixLen
	if p.Addr().Is6() {
		name, bits = "prefixlen6", o.prefixLen6
	}
	if bits != 0 && bits != p.Bits() {
		return fmt.Errorf("option %s=%d: Docker has asked for the subnet %s before it passed this option on; write --ipam-opt %s=%d instead of -o %s=%d", name, bits, p, name, bits, name, bits)
	}
	return ipam.CheckHostBits(p, o.hostBits)
}
