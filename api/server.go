package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// maxBody bounds a request body, bytes, and maxQuestion one of who may look.
const (
	maxBody     = 8 << 20
	maxQuestion = 64 << 10
)

// Handlers are the agent's answers. Each may be called by several goroutines. One that is
// nil is answered by Absent, and so is a path that none is for.
type Handlers struct {
	Status       func(context.Context) (Status, error)
	Nodes        func(context.Context) ([]Node, error)
	Networks     func(context.Context) ([]Network, error)
	Realm        func(context.Context, RealmRequest) (Done, error)
	Endpoints    func(context.Context) ([]Endpoint, error)
	Ring         func(context.Context) ([]Pool, error)
	Flows        func(context.Context) ([]Flow, error)
	Doctor       func(context.Context) (Diagnosis, error)
	Ping         func(ctx context.Context, host string) (Ping, error)
	JoinCommand  func(context.Context) (JoinCommand, error)
	Leave        func(context.Context, LeaveRequest) (Done, error)
	Join         func(context.Context) (Done, error)
	Forget       func(context.Context, ForgetRequest) (Done, error)
	Services     func(context.Context) ([]Service, error)
	NewService   func(context.Context, CreateServiceRequest) (Done, error)
	DropService  func(context.Context, RemoveServiceRequest) (Done, error)
	Expose       func(context.Context, ExposeRequest) (Done, error)
	Clients      func(context.Context) ([]NetworkClient, error)
	NewClient    func(context.Context, AddClientRequest) (AddedClient, error)
	DropClient   func(context.Context, RemoveClientRequest) (Done, error)
	Egresses     func(context.Context) ([]Egress, error)
	NewEgress    func(context.Context, CreateEgressRequest) (Done, error)
	SetEgress    func(context.Context, SetEgressRequest) (Done, error)
	DropEgress   func(context.Context, RemoveEgressRequest) (Done, error)
	BGP          func(context.Context) (BGP, error)
	Keys         func(context.Context) ([]Key, error)
	Backup       func(context.Context, io.Writer) error
	ChangeKeys   func(context.Context, KeysRequest) (Done, error)
	FastPath     func(context.Context, FastPathRequest) (Done, error)
	Policies     func(context.Context) (Policies, error)
	Apply        func(context.Context, ApplyRequest) (Done, error)
	Signing      func(context.Context, SigningRequest) (Signing, error)
	ApplySigned  func(context.Context, SignedRequest) (Done, error)
	Try          func(context.Context, ApplyRequest) (Trial, error)
	Allow        func(context.Context, AllowRequest) (Done, error)
	Learn        func(ctx context.Context, network string) (Learned, error)
	RuleCounts   func(ctx context.Context, all bool) (RuleCounts, error)
	PolicyLog    func(ctx context.Context, since uint64) (PolicyLog, error)
	DeletePolicy func(context.Context, DeletePolicyRequest) (Done, error)
	Explain      func(context.Context, ExplainRequest) (Explanation, error)
	Trace        func(context.Context, TraceRequest) (Trace, error)
	Lead         func(context.Context, TraceRequest) (Lead, error)
	Capture      func(context.Context, CaptureRequest, io.Writer) (CaptureEnd, error)
	Mirrors      func(context.Context) ([]Mirror, error)
	StartMirror  func(context.Context, MirrorRequest) (Done, error)
	StopMirror   func(context.Context, StopMirrorRequest) (Done, error)
	Limit        func(context.Context, LimitRequest) (Done, error)
	Traffic      func(ctx context.Context, of TrafficOf) (Traffic, error)
	Metrics      http.Handler // in Prometheus' text format
	// Absent says why there is no such answer; nil: it is one of another version.
	Absent error

	largest int64 // bytes of a request's body; 0: maxBody
}

// resources are what this package's files answer: each says so in itself.
var resources []struct {
	add   func(Handlers, *routes)
	looks func(h Handlers, to *Handlers)
}

// resource says of a file by which routes it is answered, and hands on what of it is for who may look and not touch: nothing of that
// changes anything or has a key in it.
func resource(add func(Handlers, *routes), looks func(h Handlers, to *Handlers)) struct{} {
	resources = append(resources, struct {
		add   func(Handlers, *routes)
		looks func(h Handlers, to *Handlers)
	}{add, looks})
	return struct{}{}
}

// root is for resources of which nothing is for who may only look.
func root(Handlers, *Handlers) {}

// Readers are the answers for who may look and not touch.
func (h Handlers) Readers() Handlers {
	r := Handlers{Absent: h.Absent, largest: maxQuestion}
	for _, of := range resources {
		of.looks(h, &r)
	}
	if r.Absent == nil {
		r.Absent = &Error{http.StatusForbidden, "that is for root: run this with sudo; without, you may look, and not change anything"}
	}
	return r
}

// Error is an error with the HTTP status to answer it by; a handler's other
// errors are answered by 500.
type Error struct {
	Status  int    `json:"-"`
	Message string `json:"error"`
}

func (e *Error) Error() string { return e.Message }

// Errorf is an Error.
func Errorf(status int, format string, args ...any) error {
	return &Error{Status: status, Message: fmt.Sprintf(format, args...)}
}

// Serve answers on the listener until ctx is done, gives calls in progress two
// seconds to end, and closes the listener.
func Serve(ctx context.Context, listener net.Listener, h Handlers) error {
	server := &http.Server{Handler: h.mux(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if server.Shutdown(grace) != nil {
			server.Close()
		}
	})
	err := server.Serve(listener)
	if !stop() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the agent's socket: %w", err)
}

// routes are the paths that are answered.
type routes struct {
	*http.ServeMux
	absent   error
	largest  int64 // bytes of a request's body
	patterns []string
}

func (r *routes) handle(pattern string, f http.HandlerFunc) {
	r.patterns = append(r.patterns, pattern)
	r.HandleFunc(pattern, f)
}

// Routes lists what an agent answers: "GET /v1/status", ...
func Routes() []string { return Handlers{}.mux().patterns }

func (h Handlers) mux() *routes {
	mux := &routes{ServeMux: http.NewServeMux(), absent: h.Absent, largest: cmp.Or(h.largest, maxBody)}
	mux.handle("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	for _, of := range resources {
		of.add(h, mux)
	}
	mux.HandleFunc("/", mux.none)
	return mux
}

// none answers what there is no handler for.
func (r *routes) none(w http.ResponseWriter, request *http.Request) {
	if r.absent != nil {
		reply(w, nil, r.absent)
		return
	}
	reply(w, nil, &Error{http.StatusNotFound, fmt.Sprintf("the agent has no %s %s: is the command of another version?", request.Method, request.URL.Path)})
}

func get[T any](mux *routes, path string, f func(context.Context) (T, error)) {
	mux.handle("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		if f == nil {
			mux.none(w, r)
			return
		}
		value, err := f(r.Context())
		reply(w, value, err)
	})
}

func post[Q, T any](mux *routes, path string, f func(context.Context, Q) (T, error)) {
	mux.handle("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		if f == nil {
			mux.none(w, r)
			return
		}
		var request Q
		if !read(w, r, mux.largest, &request) {
			return
		}
		value, err := f(r.Context(), request)
		reply(w, value, err)
	})
}

// read decodes a request's body, or answers what is wrong with it and returns false.
func read(w http.ResponseWriter, r *http.Request, largest int64, into any) bool {
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, largest))
	body.DisallowUnknownFields()
	if err := body.Decode(into); err != nil {
		reply(w, nil, &Error{http.StatusBadRequest, fmt.Sprintf("body of %s: %v", r.URL.Path, err)})
		return false
	}
	return true
}

// reply writes the value, or the error as {"error": "..."}.
func reply(w http.ResponseWriter, value any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		failure := &Error{http.StatusInternalServerError, err.Error()}
		errors.As(err, &failure)
		w.WriteHeader(failure.Status)
		value = failure
	}
	_ = json.NewEncoder(w).Encode(value) // an error here is a caller that went away
}
