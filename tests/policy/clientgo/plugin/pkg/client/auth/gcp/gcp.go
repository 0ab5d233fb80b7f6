// Package gcp is a part of the client that is no client.
package gcp
