package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// CaptureRequest asks for the packets of a container.
type CaptureRequest struct {
	// Container is NAME, NETWORK/NAME, an ID, the beginning of one, or an address.
	Container string `json:"container"`
	// Of all its packets: those to and from Peer (as Container, or any address), those of a protocol, of a port.
	Peer  string `json:"peer,omitempty"`
	Proto string `json:"proto,omitempty"`
	Port  uint16 `json:"port,omitempty"`
	// The capture ends after so many packets, bytes and seconds; 0: none of them ends it.
	Packets uint64  `json:"packets,omitempty"`
	Bytes   uint64  `json:"bytes,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
}

// CaptureEnd says how a capture ended.
type CaptureEnd struct {
	Packets uint64 `json:"packets"`
	// Lost are packets that could not be kept: they came faster than they were read.
	Lost uint64 `json:"lost"`
	// Why is empty if the one who asked went away.
	Why string `json:"why,omitempty"`
	// Cut says that payload was left out, and why.
	Cut string `json:"cut,omitempty"`
	// Error says what ended it before its time.
	Error string `json:"error,omitempty"`
}

// captureEnd is the trailer that has the CaptureEnd.
const captureEnd = "Grapevine-Capture-End"

// Capture writes a container's packets to w, as pcapng, until the capture ends or ctx does.
func (c *Client) Capture(ctx context.Context, r CaptureRequest, w io.Writer) (end CaptureEnd, err error) {
	response, err := c.send(ctx, http.MethodPost, "capture", r)
	if err != nil {
		return end, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(w, response.Body); err != nil {
		return end, fmt.Errorf("read the packets from the agent: %w", err)
	}
	if err := json.Unmarshal([]byte(response.Trailer.Get(captureEnd)), &end); err != nil {
		return end, errors.New("the agent ended in the middle of the capture")
	}
	return end, nil
}

var _ = resource(Handlers.addCapture, root)

// addCapture streams: what is answered before the first packet may be an error, what comes later is in the trailer.
func (h Handlers) addCapture(mux *routes) {
	mux.handle("POST /v1/capture", func(w http.ResponseWriter, r *http.Request) {
		if h.Capture == nil {
			mux.none(w, r)
			return
		}
		var request CaptureRequest
		if !read(w, r, mux.largest, &request) {
			return
		}
		out := &streamed{w: w, flush: http.NewResponseController(w)}
		w.Header().Set("Trailer", captureEnd)
		w.Header().Set("Content-Type", "application/x-pcapng")
		end, err := h.Capture(r.Context(), request, out)
		if err != nil && !out.begun {
			w.Header().Del("Trailer")
			reply(w, nil, err)
			return
		}
		if err != nil {
			end.Error = err.Error()
		}
		text, _ := json.Marshal(end)
		w.Header().Set(captureEnd, string(text))
	})
}

// streamed passes on at once what is written.
type streamed struct {
	w     io.Writer
	flush *http.ResponseController
	begun bool
}

func (s *streamed) Write(b []byte) (int, error) {
	s.begun = true
	n, err := s.w.Write(b)
	if err == nil {
		err = s.flush.Flush()
	}
	return n, err
}
