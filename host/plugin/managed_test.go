package plugin

import "testing"

func TestManagedID(t *testing.T) {
	const id = "952a1e6ef1371c6efb62b4f989b1a0bae099d670a059bb4b4cb7d7e85be3e659"
	for text, want := range map[string]string{
		"": "",
		// A service: /run, or a tmpfs of its own for the sockets.
		"25 29 0:23 / /run rw,nosuid shared:5 - tmpfs tmpfs rw\n":                                                                             "",
		"26 25 0:24 / /run/docker/plugins rw shared:5 - tmpfs tmpfs rw\n":                                                                     "",
		"27 25 0:23 /docker/plugins/" + id + " /run/docker/plugins/x rw - tmpfs tmpfs rw\n":                                                   "",
		"725 667 0:133 / / rw - x x rw\n765 725 0:23 /docker/plugins/" + id + " /run/docker/plugins rw,relatime shared:11 - tmpfs tmpfs rw\n": id,
	} {
		if got := managedID(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if id, err := ManagedID(); err != nil || id != "" {
		t.Errorf("this test is plugin %q, %v", id, err)
	}
}
