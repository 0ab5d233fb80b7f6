// Package rest is a part of the client that is no client.
package rest

import (
	"errors"
	"net/url"
)

// ErrNoCluster is what every call ends with.
var ErrNoCluster = errors.New("there is no cluster of Kubernetes in these tests")

// Config is nobody's.
type Config struct{}

// Client sends nothing.
type Client struct{}

// Post begins a request.
func (Client) Post() *Request { return &Request{} }

// Request goes nowhere.
type Request struct{}

// Namespace changes nothing, as the methods below.
func (r *Request) Namespace(string) *Request { return r }

// Resource says of what the request is.
func (r *Request) Resource(string) *Request { return r }

// Name says of which one.
func (r *Request) Name(string) *Request { return r }

// SubResource says of which part.
func (r *Request) SubResource(...string) *Request { return r }

// Param has a parameter.
func (r *Request) Param(string, string) *Request { return r }

// VersionedParams has more.
func (r *Request) VersionedParams(any, any) *Request { return r }

// URL is empty.
func (r *Request) URL() *url.URL { return &url.URL{} }
