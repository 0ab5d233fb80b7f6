package api

import (
	"context"
	"io"
	"net/http"
)

// Backup writes the state of the agent's host to w.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	return c.stream(ctx, w, "v1/backup")
}

// backup answers with the bytes of a backup. After an error they end early.
func (h Handlers) backup(w http.ResponseWriter, r *http.Request) {
	if h.Backup == nil {
		(&routes{absent: h.Absent}).none(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/x-tar")
	out := &counting{Writer: w}
	switch err := h.Backup(r.Context(), out); {
	case err != nil && out.n == 0:
		reply(w, nil, err)
	case err != nil:
		panic(http.ErrAbortHandler) // so that the caller sees it
	}
}

type counting struct {
	io.Writer
	n int
}

func (c *counting) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n += n
	return n, err
}

var _ = resource(Handlers.addBackup, root)

func (h Handlers) addBackup(mux *routes) {
	mux.handle("GET /v1/backup", h.backup)
}
