package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ration-go/ration/limiter"
)

// tally counts the answers to requests.
type tally struct {
	asked, decided, allowed, canceled, failed atomic.Int64
	reasons                                   sync.Map // of failures, with their number
}

// add adds what another has counted.
func (c *tally) add(other *tally) {
	c.asked.Add(other.asked.Load())
	c.decided.Add(other.decided.Load())
	c.allowed.Add(other.allowed.Load())
	c.canceled.Add(other.canceled.Load())
	c.failed.Add(other.failed.Load())
	other.reasons.Range(func(reason, n any) bool {
		c.of(reason).Add(n.(*atomic.Int64).Load())
		return true
	})
}

// of returns the number of failures for a reason.
func (c *tally) of(reason any) *atomic.Int64 {
	n, _ := c.reasons.LoadOrStore(reason, new(atomic.Int64))
	return n.(*atomic.Int64)
}

// sum returns the number of failures, for all reasons.
func (c *tally) sum() (sum int64) {
	c.reasons.Range(func(_, n any) bool {
		sum += n.(*atomic.Int64).Load()
		return true
	})
	return sum
}

func (c *tally) String() string {
	text := fmt.Sprintf("%d decided (%d allowed), %d canceled, %d failed", c.decided.Load(),
		c.allowed.Load(), c.canceled.Load(), c.failed.Load())
	c.reasons.Range(func(reason, n any) bool {
		text += fmt.Sprintf(", %d %v", n.(*atomic.Int64).Load(), reason)
		return true
	})
	return text
}

// ask counts one request.
func (c *tally) ask(ctx context.Context, l *limiter.Limiter, caller limiter.Caller) {
	c.asked.Add(1)
	d, err := l.Take(ctx, caller, 1)
	switch {
	case err == nil:
		c.decided.Add(1)
	case d.Outcome == 0:
		c.canceled.Add(1)
		return
	default:
		c.failed.Add(1)
		store, _ := errors.AsType[*limiter.StoreError](err)
		c.of(store.Reason).Add(1)
	}
	if d.Allowed() {
		c.allowed.Add(1)
	}
}

func userCaller(id string) limiter.Caller {
	return limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: id}, Route: "GET /"}
}

func newLimiter(t *testing.T, s limiter.Store, l limiter.Limit, policy limiter.FailurePolicy) *limiter.Limiter {
	t.Helper()
	return limiter.Must(limiter.New(s, []limiter.Budget{
		{Name: "api", Scope: limiter.ByPrincipal, Limit: l, OnError: policy}}, limiter.Config{}))
}
