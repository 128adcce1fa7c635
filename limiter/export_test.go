package limiter

import (
	"time"

	"github.com/ration-go/ration/internal/instant"
)

// PeekAt says what Peek would say at an instant to come, on a copy.
func (b *Bucket) PeekAt(at time.Time, cost int64) Decision {
	b.mu.Lock()
	defer b.mu.Unlock()
	ahead := Bucket{limit: b.limit, rule: b.rule, latest: b.latest, account: b.account.Clone()}
	return ahead.decideAt(ahead.advance(instant.Of(at)), cost, false)
}
