package storekit_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// memory is a Backend in this process. One mutex locks all accounts.
type memory struct {
	mu   sync.Mutex
	rows map[storekit.Key][]byte
}

func (m *memory) Update(
	_ context.Context, keys []storekit.Key, decide storekit.DecideFunc,
) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	states := make([][]byte, len(keys))
	for i, key := range keys {
		states[i] = m.rows[key]
	}
	records, err := decide(time.Now(), states)
	if err != nil {
		return err
	}
	for _, r := range records {
		m.rows[r.Key] = r.State
		if r.State == nil {
			delete(m.rows, r.Key)
		}
	}
	return nil
}

func (m *memory) View(
	ctx context.Context, keys []storekit.Key, decide storekit.DecideFunc,
) error {
	return m.Update(ctx, keys, decide) // decide returns no records here
}

func ExampleNew() {
	backend := &memory{rows: map[storekit.Key][]byte{}}
	store := limiter.Must(storekit.New(backend, storekit.Config{Name: "memory"}))
	hourly := limiter.Must(limiter.New(store, []limiter.Budget{{
		Name: "reports", Scope: limiter.ByPrincipal,
		Limit: limiter.PerHour(2), OnError: limiter.Closed,
	}}, limiter.Config{}))
	alice := limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: "alice"}}
	for range 3 {
		decision, err := hourly.Take(context.Background(), alice, 1)
		fmt.Println(decision.Outcome, decision.Remaining, err)
	}
	// Output:
	// allow 1 <nil>
	// allow 0 <nil>
	// deny 0 <nil>
}
