package memstore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
)

// Unused numbers are looked for only after the classes have doubled, so that a
// new class does not cost a look at all others.
func TestCatalog_LooksForUnusedNumbersRarely(t *testing.T) {
	s, err := New(Config{})
	require.NoError(t, err)
	c := s.classes
	var held []*class
	tokens := int64(0)
	holdUntil := func(n int) {
		for len(c.known) < n {
			tokens++
			added := c.pin(charge("a", "user", limiter.PerSecond(tokens)), false)
			held = append(held, added)
		}
	}
	holdUntil(1024)
	require.Equal(t, 1024, c.recycle)
	holdUntil(1025)
	require.Equal(t, 2048, c.recycle, "none was unused")
	holdUntil(2048)
	require.Equal(t, 2048, c.recycle)
	for _, unused := range held[1:] {
		unused.unpin()
	}
	tokens++
	c.pin(charge("a", "user", limiter.PerSecond(tokens)), false)
	require.Len(t, c.known, 2)
	require.Equal(t, 1024, c.recycle, "the least")
	holdUntil(2048)
	require.Empty(t, c.free)
	require.Equal(t, 1024, c.recycle, "there were unused numbers left")
	require.Len(t, *c.classes.Load(), 4096, "which doubles")
	holdUntil(2049)
	require.Equal(t, 4096, c.recycle)
}
