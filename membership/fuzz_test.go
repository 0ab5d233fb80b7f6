package membership

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/grapevine-net/grapevine/gossip"
	"github.com/grapevine-net/grapevine/membership/identity"
)

// FuzzKeyring: what another host answers about its keys is refused or has keys that can be used.
func FuzzKeyring(f *testing.F) {
	good, err := json.Marshal(identity.Keyring{Keys: testKey, Since: 7, Base: "x"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"keys":[]}`))
	f.Add([]byte(`{"keys":["AAAA"]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		k, err := parseKeyring(answer)
		if err == nil && (len(k.Keys) == 0 || gossip.CheckKey(k.Keys[0]) != nil) {
			t.Errorf("%s is %v", answer, k)
		}
	})
}

// FuzzOrder sends any bytes as another host's order about keys, to a host whose gossip takes none:
// its own keyring stays.
func FuzzOrder(f *testing.F) {
	f.Add([]byte(`{"verb":"list"}`))
	f.Add([]byte(`{"verb":"remove","key":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`))
	f.Add([]byte(`{"verb":"use","key":"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","since":9223372036854775807}`))
	f.Add([]byte(`{"verb":"banana","key":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var o keyOrder
		if json.Unmarshal(body, &o) == nil && gossip.CheckKey(o.Key) == nil && (o.Verb == "install" || o.Verb == "use" && string(o.Key) == string(testKey[0]) || o.Verb == "remove" && string(o.Key) != string(testKey[0])) {
			return // good ones: tests of keys have them
		}
		a := &Keys{host: &host{}}
		a.Keyring = identity.Keyring{Keys: testKey}
		answer, err := a.serveKeys(context.Background(), "other", body)
		if len(a.Keyring.Keys) != 1 || a.Since != 0 {
			t.Errorf("%s: the keyring is %v", body, a.Keyring)
		}
		if err != nil {
			return
		}
		if _, err := parseKeyring(answer); err != nil {
			t.Errorf("%s: answered %s", body, answer)
		}
	})
}
