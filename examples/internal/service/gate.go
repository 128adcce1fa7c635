package service

import (
	"context"
	"sync"
	"time"

	"github.com/ration-go/ration/limiter"
)

// gate keeps whom operators have blocked or exempted, until when. The zero gate lets
// everybody pass.
type gate struct {
	mu sync.RWMutex // guards by
	by map[string]ruling
}

// ruling holds for a user until it ends.
type ruling struct {
	blocked bool
	ends    time.Time
}

func (g *gate) set(user string, blocked bool, lasts time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.by == nil {
		g.by = map[string]ruling{}
	}
	g.by[user] = ruling{blocked, time.Now().Add(lasts)}
}

func (g *gate) remove(user string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.by, user)
}

// answer returns what holds for a user now.
func (g *gate) answer(p limiter.Principal) limiter.GateResult {
	g.mu.RLock()
	r, ok := g.by[p.ID]
	g.mu.RUnlock()
	left := time.Until(r.ends)
	if !ok || left <= 0 || p.Kind != "user" {
		return limiter.GateResult{}
	}
	if r.blocked {
		return limiter.GateResult{Blocked: true, RetryAfter: left}
	}
	return limiter.GateResult{Exempt: true}
}

// ask is Config.Gate of the limiter.
func (g *gate) ask(_ context.Context, c limiter.Caller) limiter.GateResult {
	return g.answer(c.Principal)
}
