package page

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/ui"
)

// hanging serves the recorded cluster with an agent that answers nothing while it hangs; `grapevine ui` says so after a while.
func hanging(t *testing.T, after time.Duration) (address string, hung *atomic.Bool) {
	t.Helper()
	answers, asks := recorded(t, "cluster.json"), map[string]ui.Ask{}
	answer(t, answers, "status", json.RawMessage(strings.Replace(string(answers["status"]), `"problems"`, `"was"`, 1)))
	hung = new(atomic.Bool)
	for name := range answers {
		if name == "kinds" || name == "endpoints" {
			continue
		}
		asks[name] = func(ctx context.Context, _ url.Values) (any, error) {
			for began := time.Now(); hung.Load(); time.Sleep(10 * time.Millisecond) {
				if time.Since(began) > after || ctx.Err() != nil {
					why := "the agent does not answer in time"
					if name == "status" {
						return api.Status{Problems: []api.Problem{{Code: api.AgentSilent, Severity: api.AgentSilent.Severity(), What: why}}}, nil
					}
					return nil, &api.Error{Status: 502, Message: why}
				}
			}
			return answers[name], nil
		}
	}
	for _, own := range []string{"nodes", "networks"} { // those whose answers are made of them
		delete(asks, own)
	}
	delete(asks, "traffic")
	return serveAsks(t, answers, asks), hung
}

const pill = `document.getElementById("live").textContent`

// TestHungAgent: a page whose agent hangs says since when it has heard nothing, and greys what is old, within some seconds, whatever screen
// it is; and all is well soon after the agent is.
func TestHungAgent(t *testing.T) {
	address, hung := hanging(t, 8*time.Second)
	b := browser(t)
	must(t, b.Open(address))
	must(t, b.Until(`document.querySelector(".trellis") && `+pill+` === "live"`))
	for _, hash := range []string{"#/containers", "#/"} {
		_, err := Eval[any](b, "location.hash = "+quoted(hash)+"; null")
		must(t, err)
		must(t, b.Until(`document.querySelector("main").dataset.at === `+quoted(hash)+` && `+pill+` === "live"`))
		hung.Store(true)
		began := time.Now()
		must(t, b.Until(`/^no answer since \d\d:\d\d:\d\d$/.test(`+pill+`) && getComputedStyle(document.querySelector("main")).filter.includes("grayscale")`))
		if took := time.Since(began); took > 8*time.Second { // a pause of 2 s, and 3 s; the rest is a busy machine's
			t.Errorf("%s: it took the page %v to say that nothing is heard", hash, took)
		}
		picture(t, b, "hung"+strings.ReplaceAll(hash, "/", "-"))
		if hash == "#/" { // the command says what is wrong, and that is no answer of the agent's
			must(t, b.Until(`document.querySelector("main").innerText.includes("the agent does not answer in time")`))
			said, err := Eval[string](b, pill)
			must(t, err)
			if !strings.HasPrefix(said, "no answer since ") {
				t.Errorf("the agent hangs, and the page says %q", said)
			}
			picture(t, b, "hung-said")
		} else {
			time.Sleep(10 * time.Second) // a round fails
		}
		hung.Store(false)
		began = time.Now()
		must(t, b.Until(pill+` === "live" && getComputedStyle(document.querySelector("main")).filter === "none" && !document.querySelector("main").innerText.includes("does not answer in time")`))
		if took := time.Since(began); took > 15*time.Second { // a pause of 10 s at most
			t.Errorf("%s: the agent was well for %v before the page said so", hash, took)
		}
	}
}
