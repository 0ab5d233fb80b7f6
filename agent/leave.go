package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/grapevine-net/grapevine/agent/idle"
	"github.com/grapevine-net/grapevine/api"
	"github.com/grapevine-net/grapevine/clients/sandbox"
	"github.com/grapevine-net/grapevine/driver/problems"
	"github.com/grapevine-net/grapevine/membership/identity"
	"github.com/grapevine-net/grapevine/overlay/ike"
	exposed "github.com/grapevine-net/grapevine/service/expose/hold"
)

// leave takes this host out of the cluster; package api says what that means.
// A step that fails leaves the host able to try again.
func (a *Agent) leave(ctx context.Context, r api.LeaveRequest) (api.Done, error) {
	if a.member.Leaver.Left() {
		return api.Done{Text: idle.LeftText + a.installed.Removal(ctx)}, nil
	}
	a.plane.Settle(ctx)
	text := ""
	err := a.member.Leaver.Leave(ctx, r.Force, func(ctx context.Context) {
		trouble := problems.Withdraw(ctx, a.driver)
		text = idle.LeftText + a.installed.Removal(ctx) + trouble
	})
	if err != nil {
		return api.Done{}, err
	}
	defer close(a.gone)
	a.announcer.End(ctx)
	a.member.Leaver.Depart(ctx, a.installed.ID)
	a.stopWork()
	<-a.stopped
	if err := a.demolish(ctx); err != nil {
		err = errors.Join(err, a.member.Leaver.NoteRemains(err))
		return api.Done{}, fmt.Errorf("this host has left the cluster, but not everything is removed: %w; `grapevine cleanup` removes the rest when the agent is stopped", err)
	}
	return api.Done{Text: text}, nil
}

// demolish removes the switch, the devices, the iptables rules and the state. The note that
// this host has left stays, and the command line. All tasks have ended.
func (a *Agent) demolish(ctx context.Context) error {
	_, err := sandbox.Purge(a.cfg.Run)
	_, more := exposed.Purge()
	_, told := ike.Purge(ctx, identity.IPsecTold{Dir: a.cfg.State})
	return errors.Join(err, more, told, a.plane.Teardown(ctx), a.member.Leaver.Erase())
}
