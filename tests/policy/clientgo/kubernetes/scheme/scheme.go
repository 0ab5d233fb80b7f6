// Package scheme is a part of the client that is no client.
package scheme

// ParameterCodec is none.
var ParameterCodec any
