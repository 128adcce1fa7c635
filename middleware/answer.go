package middleware

import (
	"net/http"
	"time"

	"github.com/ration-go/ration/internal/rpcstatus"
	"github.com/ration-go/ration/limiter"
)

// Refuse writes the answer that the middleware writes to a request that it refuses, for a
// handler that has charged the request by itself and was refused: d and err are what
// [limiter.Limiter.Take] returned. It does all that the middleware does: headers, jitter,
// [Config.Denied] and [Config.Failed], and the protocol of an RPC client. It names no
// budget, because it cannot know whether the caller may see it, and a budget that is
// Unavailable is refused as any other. The handler has written
// nothing yet, and returns afterwards.
func (m *Middleware) Refuse(
	w http.ResponseWriter, r *http.Request, d limiter.Decision, err error,
) {
	m.refuse(w, r, &limiter.Request{Decision: d}, err)
}

// Answer is a refusal for handlers that write it in a form of their own: to a message of a
// websocket, an item of a batch, or in an event of a stream that has begun.
type Answer struct {
	Status     int           // of HTTP, such as 429
	RetryAfter time.Duration // with jitter; 0 if no retry can succeed, or none is advised
	Problem    []byte        // JSON of RFC 9457 that ends in a newline, for reading only
}

// Answer returns what [Middleware.Refuse] would write if there were neither a
// [Config.Denied] nor a [Config.Failed].
func (m *Middleware) Answer(d limiter.Decision, err error) Answer {
	var f refusal
	m.fill(&f, &limiter.Request{Decision: d}, err, rpcstatus.Unlimited)
	return Answer{f.status, f.rpc.Wait, m.body(&f)}
}
