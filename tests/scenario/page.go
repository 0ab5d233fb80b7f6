package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/grapevine-net/grapevine/tests/lab"
	webpage "github.com/grapevine-net/grapevine/tests/page"
)

var pageCommands = map[string]command{"page": runPage}

// opened is where `grapevine ui` says that the page is.
var opened = regexp.MustCompile(`(?m)^Open (http://\S+)`)

// runPage looks at the web page in a browser on a host: `page open HOST FILE`, of which FILE is what `grapevine ui` said there; `page at
// #/HASH`, by its address; `page click SELECTOR`, by a click; `page type SELECTOR TEXT`; `page says TEXT...`, the screen does; `page pill TEXT`, what stands
// above it does; `page well`, the browser has complained of nothing.
func runPage(ctx context.Context, s *state, args []string) (string, error) {
	if len(args) < 1 {
		return "", usageError("usage: page open|at|click|type|says|pill|well ...")
	}
	verb, args := args[0], args[1:]
	if verb == "open" {
		return "", s.openPage(ctx, args)
	}
	if s.tab == nil {
		return "", usageError("page open comes first")
	}
	switch {
	case verb == "at" && len(args) == 1:
		hash, _ := json.Marshal(args[0])
		if _, err := webpage.Eval[any](s.tab, "location.hash = "+string(hash)+"; null"); err != nil {
			return "", err
		}
		return "", s.drawn()
	case verb == "click" && len(args) == 1:
		if err := s.tab.Click(args[0]); err != nil {
			return "", err
		}
		return "", s.drawn()
	case verb == "type" && len(args) == 2:
		if err := s.tab.Type(args[0], args[1]); err != nil {
			return "", err
		}
		if err := s.tab.Press("Enter"); err != nil {
			return "", err
		}
		return "", s.drawn()
	case verb == "says" && len(args) > 0:
		text, err := webpage.Eval[string](s.tab, `document.querySelector("main").innerText`)
		if err != nil {
			return "", err
		}
		for _, want := range args {
			if !strings.Contains(text, want) {
				return text, fmt.Errorf("the page does not say %s; it says:\n%s", want, text)
			}
		}
		return text, nil
	case verb == "pill" && len(args) == 1:
		text, err := webpage.Eval[string](s.tab, `document.getElementById("live").textContent`)
		if err == nil && !strings.HasPrefix(text, args[0]) {
			err = fmt.Errorf("the page says %q above, and not %q", text, args[0])
		}
		return text, err
	case verb == "well" && len(args) == 0:
		if list := s.tab.Complaints(); len(list) > 0 {
			return "", errors.New("the browser complains: " + strings.Join(list, "; "))
		}
		return "", nil
	}
	return "", usageError("page " + verb + " is not so called")
}

// drawn waits until the screen of the address is shown.
func (s *state) drawn() error {
	return s.tab.Until(`document.querySelector("main").dataset.at === (location.hash || "#/")`)
}

func (s *state) openPage(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return usageError("usage: page open HOST FILE")
	}
	h, err := s.host(args[0])
	if err != nil {
		return err
	}
	said, err := h.Exec(ctx, "cat", args[1])
	if err != nil {
		return err
	}
	m := opened.FindAllStringSubmatch(said, -1)
	if m == nil {
		return fmt.Errorf("%s does not say where the page is: %s", args[1], said)
	}
	root, err := lab.ModuleRoot()
	if err != nil {
		return err
	}
	in := h.InNetwork()
	if in == nil {
		return usageError("a browser runs where hosts are namespaces of this machine alone")
	}
	if s.browser, err = webpage.Start(s.ctx, root, in...); err != nil {
		return err
	}
	if s.tab, err = s.browser.Tab(); err != nil {
		return err
	}
	if err := s.tab.Look(1440, 900, "light"); err != nil {
		return err
	}
	if err := s.tab.Open(m[len(m)-1][1]); err != nil {
		return err
	}
	return s.tab.Until(`document.querySelector(".health")`)
}
