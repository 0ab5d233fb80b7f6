package overlay

import (
	"context"
	"fmt"

	"github.com/grapevine-net/grapevine/overlay/pipeline"
	"github.com/grapevine-net/grapevine/overlay/walk"
)

// Walk asks the switch what it would do with a packet.
func (o *Overlay) Walk(ctx context.Context, p walk.Packet) (walk.Path, error) {
	o.mu.Lock()
	in := o.last.input
	o.mu.Unlock()
	question, err := walk.Ask(in, p)
	if err != nil {
		return walk.Path{}, err
	}
	said, err := o.cfg.Bridge.Appctl(ctx, "ofproto/trace", append([]string{o.cfg.Bridge.Name}, question...)...)
	if err != nil {
		return walk.Path{}, fmt.Errorf("ask the switch what it would do with the packet: %w", err)
	}
	path, err := walk.Read(in, p, string(said))
	if fast, there := o.cfg.Fast.(walker); err == nil && there {
		var f walk.Fast
		f, err = fast.Walk(p, in)
		path.Fast, path.FastOn, path.Plain = f.End, f.On, f.Plain
	}
	return path, err
}

// walker is a fast path that says where it would take a packet.
type walker interface {
	Walk(walk.Packet, pipeline.Input) (walk.Fast, error)
}
