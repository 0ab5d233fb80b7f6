// Package clientcmd is a part of the client that is no client.
package clientcmd

import "k8s.io/client-go/rest"

// ConfigOverrides say which cluster.
type ConfigOverrides struct{ CurrentContext string }

// Rules are none.
type Rules struct{}

// NewDefaultClientConfigLoadingRules returns them.
func NewDefaultClientConfigLoadingRules() Rules { return Rules{} }

// Config has none.
type Config struct{}

// NewNonInteractiveDeferredLoadingClientConfig returns it.
func NewNonInteractiveDeferredLoadingClientConfig(Rules, *ConfigOverrides) Config { return Config{} }

// ClientConfig fails.
func (Config) ClientConfig() (*rest.Config, error) { return nil, rest.ErrNoCluster }
