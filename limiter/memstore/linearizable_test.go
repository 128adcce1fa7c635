package memstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// Histories are of a few clients that take from, peek at and settle with a few
// accounts of which each holds 20 tokens and gains one a second; the clock steps
// by whole seconds, so that all balances are integers.
const (
	accounts = 6
	capacity = 20
)

var historyLimit = limiter.Limit{Tokens: 1, Per: time.Second, Burst: capacity}

// balances is the state of the model: what each account holds.
type balances [accounts]int64

type verb string

const (
	take  verb = "take"
	peek  verb = "peek"
	fix   verb = "settle"
	later verb = "later" // the clock steps; what it adds is the cost
)

// input is one call: what it costs on some of the accounts.
type input struct {
	verb     verb
	accounts []int
	costs    []int64
}

// output is what a take or a peek answered for each of the accounts.
type output struct {
	outcome limiter.Outcome
	results []limiter.Result
}

// model is a store as one would write it for a single caller.
var model = porcupine.Model{
	Init: func() any {
		var full balances
		for i := range full {
			full[i] = capacity
		}
		return full
	},
	Step: func(state, in, out any) (bool, any) {
		before, call := state.(balances), in.(input)
		if call.verb == fix || call.verb == later {
			return true, before.correct(call)
		}
		after, want := before.decide(call)
		got := out.(output)
		if got.outcome != want.outcome || !slices.Equal(got.results, want.results) {
			return false, state
		}
		if call.verb == peek {
			after = before
		}
		return true, after
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v: %+v", in, out) },
}

func (b balances) decide(call input) (balances, output) {
	after, outcome := b, limiter.Allow
	for i, account := range call.accounts {
		after[account] -= call.costs[i]
		if after[account] < 0 {
			outcome = limiter.Deny
		}
	}
	results := make([]limiter.Result, len(call.accounts))
	for i, account := range call.accounts {
		r, left := limiter.Result{Outcome: limiter.Allow}, b[account]
		if missing := call.costs[i] - left; missing > 0 {
			r.Outcome, r.RetryAfter = limiter.Deny, time.Duration(missing)*time.Second
		}
		if outcome == limiter.Allow {
			left = after[account]
		}
		r.Remaining = max(left, 0)
		r.ResetAfter = time.Duration(capacity-left) * time.Second
		results[i] = r
	}
	if outcome == limiter.Deny {
		after = b
	}
	return after, output{outcome, results}
}

func (b balances) correct(call input) balances {
	for i, account := range call.accounts {
		b[account] = min(max(b[account]-call.costs[i], -capacity), capacity)
	}
	return b
}

// recorder makes calls and writes their history.
type recorder struct {
	store limiter.Store
	clock *clock
	ticks atomic.Int64 // orders the calls and the returns

	mu      sync.Mutex
	history []porcupine.Operation
}

// record makes one call; the ticks of its call and its return enclose it.
func (r *recorder) record(client int, in input, call func() output) {
	op := porcupine.Operation{ClientId: client, Input: in, Call: r.ticks.Add(1)}
	op.Output = call()
	op.Return = r.ticks.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, op)
}

// client makes some calls of all kinds at random.
func (r *recorder) client(t *testing.T, id int, steps bool, random *rand.Rand) {
	for range 12 {
		in := input{verb: take, accounts: random.Perm(accounts)[:1+random.IntN(3)]}
		for range in.accounts {
			in.costs = append(in.costs, 1+random.Int64N(5))
		}
		switch n := random.IntN(10); {
		case n < 2 && steps:
			r.step(id, 1+random.Int64N(3))
		case n < 4:
			in.verb = peek
			r.ask(t, id, in, r.store.Peek)
		default:
			if charges := r.ask(t, id, in, r.store.Take); charges != nil && random.IntN(2) == 0 {
				r.settle(t, id, in, charges, random)
			}
		}
	}
}

func (r *recorder) step(id int, seconds int64) {
	in := input{verb: later}
	for account := range accounts {
		in.accounts = append(in.accounts, account)
		in.costs = append(in.costs, -seconds)
	}
	r.record(id, in, func() output {
		r.clock.advance(time.Duration(seconds) * time.Second)
		return output{}
	})
}

type call func(context.Context, []limiter.Charge) (limiter.Decision, error)

// ask takes or peeks, and returns the charges of a request that is allowed.
func (r *recorder) ask(t *testing.T, id int, in input, call call) (paid []limiter.Charge) {
	charges := make([]limiter.Charge, len(in.accounts))
	for i, account := range in.accounts {
		charges[i] = limiter.Charge{Limit: historyLimit, Cost: in.costs[i]}
		charges[i].Key.Budget = fmt.Sprint("budget-", account)
	}
	r.record(id, in, func() output {
		d, err := call(context.Background(), charges)
		assert.NoError(t, err)
		results := make([]limiter.Result, len(charges))
		for i := range charges {
			results[i] = charges[i].Result
		}
		if d.Allowed() && in.verb == take {
			paid = charges
		}
		return output{d.Outcome, results}
	})
	return paid
}

func (r *recorder) settle(
	t *testing.T, id int, in input, charges []limiter.Charge, random *rand.Rand,
) {
	correction := input{verb: fix, accounts: in.accounts}
	for i := range charges {
		charges[i].Cost = random.Int64N(2*in.costs[i]+1) - in.costs[i]
		correction.costs = append(correction.costs, charges[i].Cost)
	}
	r.record(id, correction, func() output {
		assert.NoError(t, r.store.Settle(context.Background(), charges))
		return output{}
	})
}

// clients is how many call the store at once.
const clients = 8

// linearizable reports whether a history of the store has an order that a single
// caller could have seen.
func linearizable(t *testing.T, store limiter.Store, now *clock, steps bool, seed uint64) bool {
	r := &recorder{store: store, clock: now}
	var group sync.WaitGroup
	ready := make(chan struct{})
	for id := range clients {
		group.Go(func() {
			<-ready
			r.client(t, id, steps, rand.New(rand.NewPCG(seed, uint64(id))))
		})
	}
	close(ready)
	group.Wait()
	result := porcupine.CheckOperationsTimeout(model, r.history, time.Minute)
	require.NotEqual(t, porcupine.Unknown, result, "the history is too long to be checked")
	return result == porcupine.Ok
}

func TestStore_IsLinearizable(t *testing.T) {
	for _, steps := range []bool{false, true} {
		t.Run(fmt.Sprintf("clock-steps=%t", steps), func(t *testing.T) {
			for seed := range uint64(200) {
				now := &clock{}
				store := newStore(t, memstore.Config{Now: now.now})
				require.True(t, linearizable(t, store, now, steps, seed), "history %d", seed)
			}
		})
	}
}

// nonAtomic is a store whose Take peeks first and then takes the charges one by one.
type nonAtomic struct{ limiter.Store }

func (s nonAtomic) Take(ctx context.Context, charges []limiter.Charge) (limiter.Decision, error) {
	d, err := s.Store.Peek(ctx, charges)
	if err != nil || !d.Allowed() {
		return d, err
	}
	for i := range charges {
		runtime.Gosched()
		if d, err = s.Store.Take(ctx, charges[i:i+1]); err != nil {
			return d, err
		}
	}
	return d, nil
}

// Settle ignores the error for a charge that Take did not debit.
func (s nonAtomic) Settle(ctx context.Context, charges []limiter.Charge) error {
	_ = s.Store.Settle(ctx, charges)
	return nil
}

// This shows that the test above can fail.
func TestLinearizable_NoticesAStoreThatIsNotAtomic(t *testing.T) {
	for seed := range uint64(200) {
		now := &clock{}
		store := nonAtomic{newStore(t, memstore.Config{Now: now.now})}
		if !linearizable(t, store, now, false, seed) {
			return
		}
	}
	assert.Fail(t, "200 histories of a store that is not atomic look linearizable")
}
