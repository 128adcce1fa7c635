package storekit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storekit"
)

// backend is a Backend that does both by one function.
type backend func(ctx context.Context, keys []storekit.Key, decide storekit.DecideFunc) error

func (b backend) Update(
	ctx context.Context, keys []storekit.Key, decide storekit.DecideFunc,
) error {
	return b(ctx, keys, decide)
}

func (b backend) View(
	ctx context.Context, keys []storekit.Key, decide storekit.DecideFunc,
) error {
	return b(ctx, keys, decide)
}

func failing(err error) backend {
	return func(context.Context, []storekit.Key, storekit.DecideFunc) error { return err }
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	for _, tt := range []struct {
		field   string
		backend storekit.Backend
		timeout time.Duration
	}{
		{"Backend", nil, 0},
		{"Backend", (*table)(nil), 0},
		{"Config.Timeout", newTable(), time.Millisecond - 1},
		{"Config.Timeout", newTable(), -time.Second},
	} {
		_, err := storekit.New(tt.backend, storekit.Config{Timeout: tt.timeout})
		var config *limiter.ConfigError
		require.ErrorAs(t, err, &config)
		assert.Equal(t, tt.field, config.Field)
	}
}

func TestStore_Capabilities(t *testing.T) {
	rows := newTable()
	store := limiter.Must(storekit.New(rows, storekit.Config{}))
	assert.Equal(t, "custom", store.Capabilities().Name)
	store = limiter.Must(storekit.New(rows, storekit.Config{Name: "table"}))
	c := store.Capabilities()
	assert.Equal(t, "table", c.Name)
	assert.False(t, c.NeverFails)
	assert.Nil(t, c.Plan)
	assert.Nil(t, c.Accounts)
	charges := []limiter.Charge{on("alice", each[0], 1)}
	_, err := store.Take(t.Context(), charges)
	require.NoError(t, err)
	require.Len(t, rows.rows, 1)
	require.NoError(t, c.Reset(t.Context(), charges))
	assert.Empty(t, rows.rows)
}

func TestStore_ErrorsHaveTheReasonThatTheBackendShows(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{errors.New("permission denied"), storekit.Other},
		{fmt.Errorf("query: %w", context.DeadlineExceeded), storekit.Timeout},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, storekit.Timeout},
		{fmt.Errorf("connect: %w", refused), storekit.Unavailable},
		{&limiter.StoreError{Reason: storekit.Ambiguous, Err: refused}, storekit.Ambiguous},
		{fmt.Errorf("commit: %w", &limiter.StoreError{Reason: storekit.Ambiguous, Err: refused}),
			storekit.Ambiguous},
	} {
		store := newStore(t, failing(tt.err), nil)
		charges := []limiter.Charge{on("alice", each[0], 1)}
		_, err := store.Take(t.Context(), charges)
		var failed *limiter.StoreError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, tt.want, failed.Reason, "%v", tt.err)
		_, err = store.Peek(t.Context(), charges)
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, tt.want, failed.Reason, "%v", tt.err)
		require.ErrorAs(t, store.Reset(t.Context(), charges), &failed)
	}
}

func TestStore_ABackendThatDoesNotDecideIsAnError(t *testing.T) {
	swallows := func(_ context.Context, _ []storekit.Key, decide storekit.DecideFunc) error {
		_, _ = decide(start, nil)
		return nil
	}
	for _, b := range []backend{failing(nil), swallows} {
		store := newStore(t, b, nil)
		charges := []limiter.Charge{on("alice", each[0], 1)}
		_, err := store.Take(t.Context(), charges)
		require.ErrorContains(t, err, "want the error of decide returned")
		assert.Equal(t, limiter.Result{}, charges[0].Result)
		require.Error(t, store.Reset(t.Context(), charges))
	}
}

func TestStore_APanicOfTheBackendIsAnError(t *testing.T) {
	store := newStore(t, backend(
		func(context.Context, []storekit.Key, storekit.DecideFunc) error { panic("no pool") }), nil)
	_, err := store.Take(t.Context(), []limiter.Charge{on("alice", each[0], 1)})
	var failed *limiter.StoreError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, storekit.Ambiguous, failed.Reason)
	assert.ErrorContains(t, err, "no pool")
}

// An error of the caller is found before the backend is called.
func TestStore_CallersMistakesDoNotReachTheBackend(t *testing.T) {
	store := newStore(t, backend(
		func(context.Context, []storekit.Key, storekit.DecideFunc) error { panic("called") }), nil)
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err := store.Take(gone, []limiter.Charge{on("alice", each[0], 1)})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, store.Reset(gone, []limiter.Charge{on("alice", each[0], 1)}), context.Canceled)
	_, err = store.Take(t.Context(), []limiter.Charge{on("alice", each[0], -1)})
	var cost *limiter.CostError
	require.ErrorAs(t, err, &cost)
	require.ErrorIs(t, store.Settle(t.Context(), []limiter.Charge{on("alice", each[0], -1)}),
		limiter.ErrReceipt)
	d, err := store.Take(t.Context(), nil)
	require.NoError(t, err)
	assert.True(t, d.Allowed())
	require.NoError(t, store.Reset(t.Context(), nil))
}

// waiting returns a backend that waits for its context, then does as next.
func waiting(next backend) backend {
	return func(ctx context.Context, keys []storekit.Key, decide storekit.DecideFunc) error {
		<-ctx.Done()
		return next(ctx, keys, decide)
	}
}

func TestStore_EndsTheBackendAtItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := waiting(func(ctx context.Context, _ []storekit.Key, _ storekit.DecideFunc) error {
			return ctx.Err()
		})
		store := limiter.Must(storekit.New(b, storekit.Config{Timeout: time.Second}))
		begun := time.Now()
		_, err := store.Take(t.Context(), []limiter.Charge{on("alice", each[0], 1)})
		var failed *limiter.StoreError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, storekit.Timeout, failed.Reason)
		assert.Equal(t, time.Second, time.Since(begun))
	})
}

// A backend that ignores its context blocks no request, and what it decides later is not
// debited.
func TestStore_GivesUpOnABackendThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows, resume, late := newTable(), make(chan struct{}), make(chan error, 2)
		b := waiting(func(
			ctx context.Context, keys []storekit.Key, decide storekit.DecideFunc,
		) error {
			<-resume
			err := rows.Update(ctx, keys, decide)
			late <- err
			return err
		})
		store := limiter.Must(storekit.New(b, storekit.Config{Timeout: time.Second}))
		charges := []limiter.Charge{on("alice", each[0], 1)}
		for verb, want := range map[string]string{
			"Take": storekit.Ambiguous, "Peek": storekit.Timeout,
		} {
			begun := time.Now()
			call := store.Take
			if verb == "Peek" {
				call = store.Peek
			}
			_, err := call(t.Context(), charges)
			var failed *limiter.StoreError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, want, failed.Reason)
			assert.Equal(t, 1250*time.Millisecond, time.Since(begun))
		}
		close(resume)
		synctest.Wait()
		require.ErrorIs(t, <-late, context.DeadlineExceeded)
		require.ErrorIs(t, <-late, context.DeadlineExceeded)
		assert.Empty(t, rows.rows)
		assert.Equal(t, on("alice", each[0], 1), charges[0])
	})
}

type contextKey struct{}

// A caller that leaves is answered at once; its transaction is not broken off, and
// nothing is written to its charges.
func TestStore_ACallerThatLeavesIsAnsweredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows, resume := newTable(), make(chan struct{})
		var committed atomic.Bool
		b := backend(func(ctx context.Context, keys []storekit.Key, decide storekit.DecideFunc) error {
			assert.Equal(t, "trace", ctx.Value(contextKey{}))
			deadline, ok := ctx.Deadline()
			assert.True(t, ok)
			assert.Equal(t, patient, time.Until(deadline))
			<-resume
			assert.NoError(t, ctx.Err())
			err := rows.Update(ctx, keys, decide)
			committed.Store(err == nil)
			return err
		})
		store := newStore(t, b, nil)
		ctx, leave := context.WithTimeout(
			context.WithValue(t.Context(), contextKey{}, "trace"), time.Second)
		defer leave()
		charges := []limiter.Charge{on("alice", each[0], 1)}
		_, err := store.Take(ctx, charges)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var failed *limiter.StoreError
		assert.False(t, errors.As(err, &failed))
		close(resume)
		synctest.Wait()
		assert.True(t, committed.Load())
		assert.Len(t, rows.rows, 1)
		assert.Equal(t, on("alice", each[0], 1), charges[0])
	})
}

func TestStore_ResetReadsNoBytes(t *testing.T) {
	b := backend(func(_ context.Context, keys []storekit.Key, decide storekit.DecideFunc) error {
		records, err := decide(start, make([][]byte, len(keys)))
		for _, r := range records {
			assert.Nil(t, r.State)
			assert.True(t, r.FullAt.IsZero())
		}
		assert.Len(t, records, 2)
		return err
	})
	charges := []limiter.Charge{on("alice", each[0], 1), on("bob", limiter.Limit{}, -1)}
	require.NoError(t, newStore(t, b, nil).Reset(t.Context(), charges))
}
