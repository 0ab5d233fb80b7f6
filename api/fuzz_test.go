package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzBodies sends any body to the calls that change something. It is refused, or what the agent
// is told is what a client would have sent.
func FuzzBodies(f *testing.F) {
	f.Add("/v1/leave", `{"force":true}`)
	f.Add("/v1/forget", `{"hosts":["h2"]}`)
	f.Add("/v1/keys", `{"verb":"install","key":"0123abcd"}`)
	f.Add("/v1/fastpath", `{"mode":"on"}`)
	f.Add("/v1/forget", `{"hosts":1}`)
	f.Fuzz(func(t *testing.T, path, body string) {
		var told any
		mux := Handlers{
			Leave:      func(_ context.Context, r LeaveRequest) (Done, error) { told = r; return Done{}, nil },
			Forget:     func(_ context.Context, r ForgetRequest) (Done, error) { told = r; return Done{}, nil },
			ChangeKeys: func(_ context.Context, r KeysRequest) (Done, error) { told = r; return Done{}, nil },
			FastPath:   func(_ context.Context, r FastPathRequest) (Done, error) { told = r; return Done{}, nil },
		}.mux()
		r, err := http.NewRequest(http.MethodPost, "http://agent/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.URL.Path = path
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if (w.Code == http.StatusOK) != (told != nil) {
			t.Errorf("%s %q: %d, and the agent was told %+v", path, body, w.Code, told)
		}
		if w.Code/100 != 3 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %q: the answer is %q", path, body, w.Body)
		}
	})
}
