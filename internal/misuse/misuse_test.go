package misuse_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/internal/misuse"
)

func TestStreak_IsToldOnceAfterManyMisses(t *testing.T) {
	var s misuse.Streak
	for range misuse.Patience - 1 {
		assert.False(t, s.Miss())
	}
	assert.True(t, s.Miss())
	for range 3 * misuse.Patience {
		assert.False(t, s.Miss())
	}
}

func TestStreak_EndsWithAHit(t *testing.T) {
	var s misuse.Streak
	assert.False(t, s.Miss())
	s.Hit()
	for range 3 * misuse.Patience {
		assert.False(t, s.Miss())
	}
}

func TestStreak_IsToldOnceByManyGoroutines(t *testing.T) {
	var s misuse.Streak
	var told atomic.Int64
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range misuse.Patience {
				if s.Miss() {
					told.Add(1)
				}
			}
		})
	}
	callers.Wait()
	assert.EqualValues(t, 1, told.Load())
}

func TestOnce_IsFirstOnceForEachCode(t *testing.T) {
	var once misuse.Once
	var first atomic.Int64
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for _, code := range []string{"a", "b", "a"} {
				if once.First(code) {
					first.Add(1)
				}
			}
		})
	}
	callers.Wait()
	assert.EqualValues(t, 2, first.Load())
}
