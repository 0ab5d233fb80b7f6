package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

const (
	fileFlag = "config"
	fileEnv  = prefix + "CONFIG"
)

// AddFlags declares a flag for each of the named settings (none named: for all)
// and --config.
func AddFlags(flags *pflag.FlagSet, names ...string) {
	for _, s := range Table {
		if len(names) == 0 || slices.Contains(names, s.Name) {
			flags.String(s.Name, s.Default, strings.ReplaceAll(s.Doc, "`", "'"))
		}
	}
	flags.String(fileFlag, DefaultFile, "File with GRAPEVINE_...=... lines")
}

// Load reads flags (declared by AddFlags), environ (as os.Environ) and the file
// that they name, by readFile (os.ReadFile). Its error lists everything that is
// wrong, one line each; each line says what to do.
func Load(flags *pflag.FlagSet, environ []string, readFile func(string) ([]byte, error)) (Config, error) {
	env, envErr := fromEnviron(environ)
	file, fileErr := fromFile(flags, env, readFile)
	var c Config
	errs := []error{envErr, fileErr}
	for _, s := range Table {
		value, source := s.value(flags, env, file)
		if value == "" {
			continue
		}
		if err := s.set(&c, value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", source, err))
		}
		if s.Shared && value != s.Default {
			c.shared = append(c.shared, s.Env()+"="+value)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Config{}, err
	}
	err := c.check() // which fills in what follows from other settings
	return c, err
}

// value is what the setting is, and who says so.
func (s Setting) value(flags *pflag.FlagSet, env, file map[string]string) (value, source string) {
	value, source = s.Default, "default"
	switch flag := flags.Lookup(s.Name); {
	case flag != nil && flag.Changed:
		value, source = flag.Value.String(), "flag --"+s.Name
	case env[s.Env()] != "":
		value, source = env[s.Env()], "environment variable "+s.Env()
	case file[s.Env()] != "":
		value, source = file[s.Env()], "line "+s.Env()+" of the configuration file"
	}
	if value == "" { // a flag may say so, and means what an empty variable does
		value = s.Default
	}
	return value, source
}

// State is where the agent keeps what it knows, by the same sources as Load, whatever is wrong with other settings.
func State(flags *pflag.FlagSet, environ []string, readFile func(string) ([]byte, error)) string {
	env, _ := fromEnviron(environ)
	file, _ := fromFile(flags, env, readFile)
	c := Default()
	for _, s := range Table {
		if s.Name == "state" {
			value, _ := s.value(flags, env, file)
			_ = s.set(&c, value)
		}
	}
	return c.State
}

// Default is the configuration of an agent that is told nothing.
func Default() Config {
	nothing := func(string) ([]byte, error) { return nil, fs.ErrNotExist }
	c, _ := Load(pflag.NewFlagSet("", pflag.ContinueOnError), nil, nothing) // the table's own values are valid: a test says so
	return c
}

// fromEnviron picks the GRAPEVINE_ variables out of environ.
func fromEnviron(environ []string) (map[string]string, error) {
	values := map[string]string{}
	var errs []error
	for _, entry := range environ {
		key, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if !known(key) && key != fileEnv {
			errs = append(errs, fmt.Errorf("environment variable %s is unknown: %s", key, suggest(key)))
		}
		values[key] = strings.TrimSpace(value)
	}
	return values, errors.Join(errs...)
}

// fromFile reads the file named by the flag or the environment, else DefaultFile,
// which alone may be absent. With an error it returns the lines that are well.
func fromFile(flags *pflag.FlagSet, env map[string]string, readFile func(string) ([]byte, error)) (map[string]string, error) {
	name, named := DefaultFile, false
	if v := env[fileEnv]; v != "" {
		name, named = v, true
	}
	if flag := flags.Lookup(fileFlag); flag != nil && flag.Changed {
		name, named = flag.Value.String(), true
	}
	data, err := readFile(name)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration file: %w", err)
	}
	values, err := parseFile(string(data))
	if err != nil {
		err = fmt.Errorf("configuration file %s: %w", name, err)
	}
	return values, err
}

// parseFile reads KEY=VALUE lines. Empty lines and those that begin with # are
// skipped; a value may stand in single or double quotes, as in systemd's and
// the shell's files of this kind.
func parseFile(text string) (map[string]string, error) {
	values := map[string]string{}
	var errs []error
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, found := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		_, twice := values[key]
		switch {
		case !found:
			errs = append(errs, fmt.Errorf("line %d is not KEY=VALUE", n))
		case !known(key):
			errs = append(errs, fmt.Errorf("line %d: %s is unknown: %s", n, key, suggest(key)))
		case twice:
			errs = append(errs, fmt.Errorf("line %d: %s is set a second time: remove one of the lines", n, key))
		default:
			values[key] = unquote(value)
		}
	}
	return values, errors.Join(errs...)
}

func unquote(v string) string {
	if n := len(v); n >= 2 && v[0] == v[n-1] && (v[0] == '"' || v[0] == '\'') {
		return v[1 : n-1]
	}
	return v
}

const defaultClientPort = 7949

// check finds contradictions between settings and fills in what depends on others.
func (c *Config) check() error {
	wrapped := c.Encapsulation()
	if c.VXLANPort != 0 && !wrapped.Ports() {
		return fmt.Errorf("a UDP port of %s is set (vxlan-port), which has no ports: take vxlan-port away, on every host", wrapped.Title)
	}
	if c.VXLANPort == 0 {
		c.VXLANPort = wrapped.Port
	}
	if !wrapped.Secured() && c.Encrypts() {
		return fmt.Errorf("all is to be encrypted (encryption is all), and what goes by %s (encap) is not: set encap to vxlan on every host, of which nothing on the way sees any then, since all of it is inside WireGuard; or set encryption to networks", wrapped.Title)
	}
	if !wrapped.Secured() && c.NeedsIPsec() {
		return fmt.Errorf("what goes to other hosts is to go by IPsec (ipsec), and with %s (encap) that was not tried yet: set ipsec to off or encap to vxlan, on every host", wrapped.Title)
	}
	if c.Port == c.VXLANPort {
		return fmt.Errorf("gossip (port) and %s (vxlan-port) both want UDP port %d: change one of them on every host", wrapped.Title, c.Port)
	}
	if c.Encrypts() && (c.WireGuardPort == c.Port || c.WireGuardPort == c.VXLANPort) {
		return fmt.Errorf("WireGuard (wireguard-port) wants UDP port %d, which gossip (port) or %s (vxlan-port) has: change one of them", c.WireGuardPort, wrapped.Title)
	}
	if c.Encrypts() && c.NeedsIPsec() {
		return errors.New("VXLAN is to go by WireGuard (encryption is all) and by IPsec (ipsec), and one of the two is enough: take one of them away on every host")
	}
	// That of the default is no contradiction before there is a client, and the error is told then.
	if c.ClientPort != defaultClientPort && (c.ClientPort == c.Port || c.ClientPort == c.VXLANPort || c.Encrypts() && c.ClientPort == c.WireGuardPort) {
		return fmt.Errorf("clients (client-port) want UDP port %d, which gossip (port), %s (vxlan-port) or WireGuard (wireguard-port) has: change one of them", c.ClientPort, wrapped.Title)
	}
	switch {
	case !c.Edge() && len(c.Networks) > 0:
		return fmt.Errorf("this host is to reach the networks %s (networks), which is for a host without Docker: a host with Docker reaches all; take networks away, or set docker to none", strings.Join(c.Networks, ", "))
	case c.Edge() && len(c.Networks) == 0:
		return errors.New("this host has no Docker (docker is none), and is told of no network to reach: set networks to their names, such as blue,red, or to all")
	case c.Edge() && len(c.Join) == 0:
		return errors.New("this host has no Docker (docker is none), and so begins no cluster: set join to the addresses of hosts that have it")
	}
	if err := c.checkBGP(); err != nil {
		return err
	}
	if c.PrefixLen < c.CIDR4.Bits() {
		return fmt.Errorf("a network's prefix of %d bits (prefixlen) does not fit into cidr4 %s: raise prefixlen or take a shorter cidr4", c.PrefixLen, c.CIDR4)
	}
	if c.HostSubnetLength >= 32-c.PrefixLen && c.HostSubnetLength != 0 {
		return fmt.Errorf("a network of prefixlen %d has %d host bits: hostsubnetlength %d leaves no host a subnet of its own; make it smaller",
			c.PrefixLen, 32-c.PrefixLen, c.HostSubnetLength)
	}
	for i, at := range c.Join {
		if at.Port() == 0 {
			c.Join[i] = netip.AddrPortFrom(at.Addr(), c.Port)
		}
	}
	if c.KeyFile == "" {
		c.KeyFile = c.State + "/key"
	}
	if c.MetricsTokenFile == "" {
		c.MetricsTokenFile = c.State + "/metrics-token"
	}
	return nil
}
