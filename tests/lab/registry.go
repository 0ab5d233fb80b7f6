package lab

import (
	"context"
	"os"
	"path/filepath"
	"time"
)

// Registry is where StartRegistry's registry is; dockerd speaks plain HTTP with it.
const Registry = OutsideAddr + ":5000"

// registryConfig is the registry's configuration (distribution 2.8), without the
// directory of its storage.
const registryConfig = `version: 0.1
log: {level: warn}
http: {addr: ":5000"}
storage: {filesystem: {rootdirectory: `

// StartRegistry starts an empty registry of images and plugins on the outside, and
// waits until it answers.
func (l *Lab) StartRegistry(ctx context.Context) error {
	dir := l.sub("outside", "registry")
	config := filepath.Join(l.sub("outside"), "registry.yml")
	if err := os.WriteFile(config, []byte(registryConfig+dir+"}}\n"), 0o644); err != nil {
		return err
	}
	b := l.Outside.box
	start := request{Op: opStart, Name: "registry", Argv: []string{"docker-registry", "serve", config}, Log: b.logFile()}
	if _, _, _, err := b.do(ctx, start); err != nil {
		return err
	}
	end := time.Now().Add(10 * time.Second)
	for {
		_, err := l.Outside.Fetch(ctx, "http://"+Registry+"/v2/")
		if err == nil || time.Now().After(end) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
