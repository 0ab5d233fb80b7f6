package membership

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/api/words"
	"github.com/grapevine-net/grapevine/cluster"
	"github.com/grapevine-net/grapevine/config"
	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// methodKeys is the call by which one host changes or asks another one's gossip
// keys: a keyOrder, answered by an identity.Keyring, both as JSON.
const methodKeys = "agent.keys"

// keyOrder is what to do with a key. The verbs are wire format.
type keyOrder struct {
	Verb  string `json:"verb"` // "list", "install", "use", "remove"
	Key   []byte `json:"key,omitempty"`
	Since int64  `json:"since,omitempty"` // of use: Keyring.Since
}

// Keys are this host's gossip keys: those of gossip, and on the disk.
type Keys struct {
	*host
	mu sync.Mutex
	identity.Keyring
}

// fingerprint names a key without giving it away.
func fingerprint(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:4])
}

// obey changes this host's keys, durably, or says why not. To repeat an order is
// no error.
func (m *Keys) obey(o keyOrder) (identity.Keyring, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.Keyring
	next.Keys = slices.Clone(next.Keys)
	at := slices.IndexFunc(next.Keys, func(k []byte) bool { return bytes.Equal(k, o.Key) })
	var apply func([]byte) error
	switch {
	case o.Verb == "list":
		return next, nil
	case o.Verb == "install":
		apply = m.gossip.InstallKey
		if at < 0 {
			next.Keys = append(next.Keys, o.Key)
		}
	case o.Verb == "use" && at >= 0:
		apply = m.gossip.UseKey
		if at > 0 { // later than what it replaces, whatever the clock of the host that orders it says
			next.Since++
		}
		next.Keys = append([][]byte{o.Key}, slices.Delete(next.Keys, at, at+1)...)
		next.Since = max(next.Since, o.Since)
	case o.Verb == "use":
		return next, errors.New("it does not have the key: install it first")
	case o.Verb == "remove" && at == 0:
		return next, errors.New("it encrypts with the key: use another one first")
	case o.Verb == "remove":
		apply = m.gossip.RemoveKey
		if at > 0 {
			next.Keys = slices.Delete(next.Keys, at, at+1)
		}
	default:
		return next, fmt.Errorf("it does not know %q; is its agent older?", o.Verb)
	}
	// A key that is to go must be gone from the disk only after the others; one
	// that is to encrypt must be there before it does.
	if err := next.Save(m.cfg.State); err != nil {
		return m.Keyring, err
	}
	if err := apply(o.Key); err != nil {
		return m.Keyring, errors.Join(err, m.Keyring.Save(m.cfg.State))
	}
	m.Keyring = next
	return next, nil
}

// serveKeys is the other side of order.
func (m *Keys) serveKeys(_ context.Context, _ string, body []byte) ([]byte, error) {
	var o keyOrder
	if err := json.Unmarshal(body, &o); err != nil {
		return nil, fmt.Errorf("malformed order about keys: %w", err)
	}
	if o.Verb != "list" {
		if err := gossip.CheckKey(o.Key); err != nil {
			return nil, err
		}
	}
	k, err := m.obey(o)
	if err != nil {
		return nil, err
	}
	return json.Marshal(k)
}

// order gives an order to all hosts, this one last, and returns their keyrings
// and, by name, why some did not obey.
func (m *Keys) order(ctx context.Context, o keyOrder) (rings map[cluster.NodeID]identity.Keyring, failed map[string]error) {
	rings, failed = map[cluster.NodeID]identity.Keyring{}, map[string]error{}
	body, err := json.Marshal(o)
	if err != nil {
		return rings, map[string]error{m.cfg.Name: err}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, 32)
	for n := range cluster.All[cluster.Node](m.replica.Snapshot()) {
		if n.ID == m.Self() {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			k, err := m.orderOne(ctx, n.ID, body)
			mu.Lock()
			defer mu.Unlock()
			if rings[n.ID] = k; err != nil {
				delete(rings, n.ID)
				failed[cmp.Or(n.Name, string(n.ID))] = err
			}
		})
	}
	wg.Wait()
	if o.Verb == "list" || len(failed) == 0 {
		k, err := m.obey(o)
		if rings[m.Self()] = k; err != nil {
			delete(rings, m.Self())
			failed[m.cfg.Name] = err
		}
	}
	return rings, failed
}

// obeyWithin is how long a host has to obey: gossip says at once of one that is gone, and a crowded one is slow.
const obeyWithin = 15 * time.Second

func (m *Keys) orderOne(ctx context.Context, id cluster.NodeID, body []byte) (k identity.Keyring, err error) {
	ctx, cancel := context.WithTimeout(ctx, obeyWithin)
	defer cancel()
	answer, err := m.gossip.Call(ctx, string(id), methodKeys, body)
	if err != nil {
		return k, err
	}
	return parseKeyring(answer)
}

// parseKeyring reads another host's answer: what follows takes it to have a key that encrypts.
func parseKeyring(answer []byte) (k identity.Keyring, err error) {
	if err := json.Unmarshal(answer, &k); err != nil {
		return k, fmt.Errorf("malformed answer about keys: %w", err)
	}
	if len(k.Keys) == 0 {
		return k, errors.New("malformed answer about keys: it has none")
	}
	for _, key := range k.Keys {
		if err := gossip.CheckKey(key); err != nil {
			return k, fmt.Errorf("malformed answer about keys: %w", err)
		}
	}
	return k, nil
}

// List answers GET /v1/keys.
func (m *Keys) List(ctx context.Context) ([]api.Key, error) {
	rings, failed := m.order(ctx, keyOrder{Verb: "list"})
	found := map[string]*api.Key{}
	for _, r := range rings {
		for i, key := range r.Keys {
			id := fingerprint(key)
			if found[id] == nil {
				found[id] = &api.Key{ID: id, Hosts: len(rings) + len(failed)}
			}
			found[id].On++
			if i == 0 {
				found[id].Using++
			}
		}
	}
	list := []api.Key{}
	for _, k := range found {
		list = append(list, *k)
	}
	slices.SortFunc(list, func(a, b api.Key) int { return cmp.Or(cmp.Compare(b.Using, a.Using), cmp.Compare(a.ID, b.ID)) })
	return list, nil
}

// Change answers POST /v1/keys.
func (m *Keys) Change(ctx context.Context, r api.KeysRequest) (api.Done, error) {
	key, err := m.keyFor(ctx, r)
	if err != nil {
		return api.Done{}, &api.Error{Status: http.StatusBadRequest, Message: err.Error()}
	}
	o := keyOrder{Verb: r.Verb, Key: key, Since: time.Now().UnixMilli()}
	if err := m.safe(ctx, o); err != nil {
		return api.Done{}, &api.Error{Status: http.StatusConflict, Message: err.Error()}
	}
	rings, failed := m.order(ctx, o)
	if len(failed) > 0 {
		return api.Done{}, &api.Error{Status: http.StatusConflict, Message: fmt.Sprintf(
			"%s key %s: done on %s; not on %s; run it again when they are there, or `grapevine forget` those that are gone for good",
			r.Verb, fingerprint(key), words.Plural(len(rings), "host"), reasons(failed))}
	}
	done := map[string]string{"install": "has key %s now; next: grapevine keys use %[2]s", "use": "encrypts with key %s now; next: grapevine keys remove the old one", "remove": "has key %s no longer"}
	return api.Done{Text: fmt.Sprintf("Every host (%d) "+done[r.Verb], len(rings), fingerprint(key))}, nil
}

// keyFor finds the key that a request means, by its fingerprint or in full; to
// install, a new one if it names none.
func (m *Keys) keyFor(ctx context.Context, r api.KeysRequest) ([]byte, error) {
	switch {
	case !slices.Contains([]string{"install", "use", "remove"}, r.Verb):
		return nil, fmt.Errorf("keys %q: want install, use or remove", r.Verb)
	case r.Key == "" && r.Verb == "install":
		return gossip.GenerateKey(), nil
	case len(r.Key) == len(fingerprint(nil)):
		rings, _ := m.order(ctx, keyOrder{Verb: "list"})
		for _, ring := range rings {
			for _, key := range ring.Keys {
				if fingerprint(key) == r.Key {
					return key, nil
				}
			}
		}
		return nil, fmt.Errorf("no host has a key %s: `grapevine keys list` lists them", r.Key)
	}
	keys, err := config.ParseKeys(r.Key)
	switch {
	case err != nil && r.Verb == "install":
		return nil, err
	case err != nil: // what was typed may be a key with a slip in it, and is not repeated
		return nil, errors.New("that is neither a key's ID, as `grapevine keys list` has it, nor a whole key in base64")
	case len(keys) != 1:
		return nil, fmt.Errorf("%d keys were given: name one", len(keys))
	}
	return keys[0], nil
}

// safe refuses orders that would shut a host out, before any host obeys.
func (m *Keys) safe(ctx context.Context, o keyOrder) error {
	if o.Verb == "install" {
		return nil
	}
	rings, failed := m.order(ctx, keyOrder{Verb: "list"})
	if len(failed) > 0 {
		return fmt.Errorf("%s key %s: %s would be shut out, if it does not know: nothing was changed; bring it back, or `grapevine forget` it if it is gone for good",
			o.Verb, fingerprint(o.Key), reasons(failed))
	}
	for id, r := range rings {
		has := slices.ContainsFunc(r.Keys, func(k []byte) bool { return bytes.Equal(k, o.Key) })
		switch name := hostName(m.replica.Snapshot(), id); {
		case o.Verb == "use" && !has:
			return fmt.Errorf("use key %s: host %s does not have it: install it first; nothing was changed", fingerprint(o.Key), name)
		case o.Verb == "remove" && bytes.Equal(r.Keys[0], o.Key):
			return fmt.Errorf("remove key %s: host %s encrypts with it: use another one first; nothing was changed", fingerprint(o.Key), name)
		}
	}
	return nil
}

// reasons lists hosts and why they did not obey.
func reasons(failed map[string]error) string {
	var list []string
	for name, err := range failed {
		list = append(list, fmt.Sprintf("%s (%v)", name, err))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// keysEvery is how often a host looks whether it missed a change of the keys.
const keysEvery = 20 * time.Second

// catchUpKeys takes a key into use that the others have come to use meanwhile: this
// host has it, but was not reached by the order.
func (m *Keys) catchUpKeys(ctx context.Context) error {
	tick := time.NewTicker(keysEvery)
	defer tick.Stop()
	first := time.NewTimer(2 * time.Second)
	defer first.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-first.C:
		case <-tick.C:
		}
		for _, id := range m.gossip.Alive()[:min(1, len(m.gossip.Alive()))] {
			if err := m.catchUpKeysWith(ctx, cluster.NodeID(id)); err != nil && ctx.Err() == nil {
				m.log.Debug("ask for gossip keys", "host", id, "err", err)
			}
		}
	}
}

func (m *Keys) catchUpKeysWith(ctx context.Context, id cluster.NodeID) error {
	body, err := json.Marshal(keyOrder{Verb: "list"})
	if err != nil {
		return err
	}
	theirs, err := m.orderOne(ctx, id, body)
	if err != nil {
		return err
	}
	ours, err := m.obey(keyOrder{Verb: "list"})
	if err != nil || theirs.Since <= ours.Since || len(theirs.Keys) == 0 {
		return err
	}
	for _, o := range []keyOrder{{Verb: "install", Key: theirs.Keys[0]}, {Verb: "use", Key: theirs.Keys[0], Since: theirs.Since}} {
		if _, err := m.obey(o); err != nil {
			return err
		}
	}
	m.log.Info("took over the gossip key that the cluster uses now", "key", fingerprint(theirs.Keys[0]), "from", id)
	return nil
}
