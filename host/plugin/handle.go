package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-plugins-helpers/sdk"

	"github.com/grapevine-net/grapevine/leisure"
)

// Handle registers f for a method whose request must have a body. Docker's
// client retries a call that failed below HTTP for 30 s and may send it again
// with the body already drained (moby issue 35459), so an empty body is refused.
//
// f's error reaches Docker as HTTP 200 with the driver's error field set; a
// request that is no valid JSON object of at most MaxBody bytes gets a 400 and
// does not reach f. The context of a call ends when Docker hangs up or the
// Server stops.
func Handle[Req, Resp any](s *Server, d Driver, method string, f func(context.Context, *Req) (*Resp, error)) {
	register(s, d, method, false, f)
}

// HandleNoBody is Handle for the methods that Docker calls with an empty body:
// GetCapabilities and GetDefaultAddressSpaces. A body that comes is ignored.
func HandleNoBody[Resp any](s *Server, d Driver, method string, f func(context.Context) (*Resp, error)) {
	register(s, d, method, true, func(ctx context.Context, _ *struct{}) (*Resp, error) { return f(ctx) })
}

func register[Req, Resp any](s *Server, d Driver, method string, emptyOK bool, f func(context.Context, *Req) (*Resp, error)) {
	name := string(d) + "." + method
	s.mux.HandleFunc("/"+name, func(w http.ResponseWriter, r *http.Request) {
		s.running.RLock()
		defer s.running.RUnlock()
		if s.stopped {
			reply(w, http.StatusServiceUnavailable, errorBody(d, fmt.Errorf("%s: the agent is stopping; try again", name)))
			return
		}
		leisure.Busy()
		start := time.Now()
		req := new(Req)
		if err := decode(w, r, emptyOK, req); err != nil {
			s.log.Warn("plugin request refused", "method", name, "err", err)
			if errors.Is(err, errEmpty) {
				s.lost(name)
			}
			reply(w, http.StatusBadRequest, errorBody(d, fmt.Errorf("%s: %w", name, err)))
			return
		}
		said := excerpt(*req) // before f has it
		late := time.AfterFunc(s.late, func() {
			s.log.Warn("Docker still waits for an answer", "method", name, "request", said, "since", start.UTC())
		})
		defer late.Stop()
		ctx, cancel := context.WithTimeout(r.Context(), s.patience)
		defer cancel()
		defer context.AfterFunc(s.stop, cancel)()
		resp, err := guard(s, name, func() (*Resp, error) { return f(ctx, req) })
		s.log.Debug("plugin request", "method", name, "request", said, "took", time.Since(start), "err", err)
		if err != nil {
			reply(w, http.StatusOK, errorBody(d, err))
			return
		}
		reply(w, http.StatusOK, resp)
	})
}

// excerpt is the beginning of a request, for people.
func excerpt(req any) string {
	out := &first{left: shown}
	_, _ = fmt.Fprintf(out, "%+v", req)
	return out.String()
}

// first keeps the first bytes written to it.
type first struct {
	strings.Builder
	left int
}

// Write implements io.Writer.
func (f *first) Write(p []byte) (int, error) {
	n := min(len(p), f.left)
	f.left -= n
	_, _ = f.Builder.Write(p[:n])
	return len(p), nil
}

// guard runs f and turns a panic into an error: one bad request must not take
// the containers' other calls down with it.
func guard[Resp any](s *Server, name string, f func() (*Resp, error)) (resp *Resp, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("panic in a plugin request", "method", name, "panic", p, "stack", string(debug.Stack()))
			resp, err = nil, fmt.Errorf("%s: internal error: %v; please report it with the agent's log", name, p)
		}
	}()
	return f()
}

// decode reads r's body into req: one JSON object, unknown fields ignored (newer
// engines add some), nothing behind it.
func decode(w http.ResponseWriter, r *http.Request, emptyOK bool, req any) error {
	if r.Method != http.MethodPost {
		return fmt.Errorf("method %s: plugin calls are POSTs", r.Method)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return fmt.Errorf("request body is larger than %d bytes", MaxBody)
	case err != nil:
		return fmt.Errorf("read request body: %w", err)
	case emptyOK:
		return nil
	}
	return parse(body, req)
}

var errEmpty = errors.New("request body is empty: probably a retry whose body was lost; repeat the command")

// parse decodes body, which must be one JSON object, into req.
func parse(body []byte, req any) error {
	body = bytes.Trim(body, " \t\r\n") // RFC 8259 section 2
	if len(body) == 0 {
		return errEmpty
	}
	if body[0] != '{' {
		return errors.New("request body is not a JSON object")
	}
	if err := json.Unmarshal(body, req); err != nil {
		return fmt.Errorf("request body is malformed: %w", err)
	}
	return nil
}

func errorBody(d Driver, err error) map[string]string {
	return map[string]string{d.errorKey(): err.Error()}
}

// reply writes one JSON value. A value that does not encode is a bug of ours and
// becomes a 500; a peer that has hung up is no concern of ours.
func reply(w http.ResponseWriter, status int, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", sdk.DefaultContentTypeV1_1)
	w.Header().Set("Content-Length", strconv.Itoa(len(b)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
	// Before the request counts as over: a Server that stops closes its connections.
	_ = http.NewResponseController(w).Flush()
}
