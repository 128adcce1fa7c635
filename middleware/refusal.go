package middleware

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/ration-go/ration/limiter"
)

// refusal is the answer to a request that does not reach its handler.
type refusal struct {
	answer   limiter.Answer
	status   int
	kind     *kind            // of problem
	decision limiter.Decision // of the budget that refused
	named    bool             // the caller may be told of that budget
	hidden   bool             // but not of the state of its account
	err      error            // or why nothing could be decided
	wait     time.Duration    // until it may be tried again, with jitter; 0: never, or not known
}

// refuse answers a request that does not reach its handler.
func (m *Middleware) refuse(
	w http.ResponseWriter, r *http.Request, route string, d limiter.Decision, err error,
	hidden bool,
) {
	no := m.refusal(r, d, err)
	no.hidden = hidden
	m.limiter.Answered(transport, route, no.answer)
	if isGRPC(r) {
		no.writeGRPC(w, r)
		return
	}
	m.write(w, r, no)
}

func (m *Middleware) refusal(r *http.Request, d limiter.Decision, err error) refusal {
	switch {
	case storeFailed(err):
		return refusal{answer: limiter.AnswerErrorClosed, status: http.StatusServiceUnavailable,
			err: err, wait: m.later(max(d.RetryAfter, 1))}
	case errors.Is(err, limiter.ErrNobody) && m.who.Challenge() == "":
		// A 401 must state a challenge (RFC 9110, section 15.5.2); where there is
		// none to state, credentials would not help.
		return refusal{answer: limiter.AnswerUnauthenticated, status: http.StatusForbidden, err: err}
	case errors.Is(err, limiter.ErrNobody):
		return refusal{answer: limiter.AnswerUnauthenticated, status: http.StatusUnauthorized, err: err}
	case err != nil && r.Context().Err() != nil:
		return refusal{answer: limiter.AnswerCanceled, status: http.StatusServiceUnavailable, err: err}
	case err != nil:
		// The closest outcome: refused, because it could not be decided.
		return refusal{answer: limiter.AnswerErrorClosed, status: http.StatusInternalServerError,
			err: err}
	}
	no := refusal{answer: limiter.AnswerNever, status: http.StatusTooManyRequests,
		kind: quotaExceeded, decision: d, named: m.named(d.Budget)}
	if d.Outcome == limiter.Deny {
		no.answer, no.wait = limiter.AnswerDeny, m.later(max(d.RetryAfter, 1))
		if slices.Contains(m.cfg.Unavailable, d.Budget) {
			no.status, no.kind = http.StatusServiceUnavailable, reducedCapacity
		}
	}
	return no
}

// later adds the jitter to a wait.
func (m *Middleware) later(wait time.Duration) time.Duration {
	if m.cfg.Jitter == 0 {
		return wait
	}
	return wait + rand.N(m.cfg.Jitter+1)
}

// inherited are headers that were meant for the answer of the handler: they
// describe its body, or let a cache keep it.
var inherited = map[string]bool{
	"Accept-Ranges": true, "Age": true, "Content-Digest": true, "Content-Disposition": true,
	"Content-Encoding": true, "Content-Language": true, "Content-Length": true,
	"Content-Location": true, "Content-Range": true, "Content-Type": true, "Digest": true,
	"Etag": true, "Expires": true, "Last-Modified": true, "Pragma": true, "Repr-Digest": true,
	"Retry-After": true, "Cdn-Cache-Control": true, "Cloudflare-Cdn-Cache-Control": true,
	"Surrogate-Control": true,
}

func disinherit(h http.Header) {
	for name := range h {
		if inherited[name] {
			delete(h, name)
		}
	}
}

// write answers by HTTP. Headers set upstream, such as those of CORS, stay where
// they do not speak of another body.
func (m *Middleware) write(w http.ResponseWriter, r *http.Request, no refusal) {
	h := w.Header()
	disinherit(h)
	values := [3]string{"no-store", "application/problem+json"}
	h["Cache-Control"] = values[:1:1]
	if no.wait > 0 {
		values[2] = decimal(max(wholeSeconds(no.wait), outerWait(h)))
		h["Retry-After"] = values[2:]
	}
	if no.err == nil {
		untell(h)
	}
	if no.named && !no.hidden && m.cfg.Headers != Off {
		m.tell(h, &no.decision)
	}
	if no.status == http.StatusUnauthorized {
		h.Set("Www-Authenticate", m.who.Challenge())
	}
	if custom := m.custom(no); custom != nil {
		a := &answerer{ResponseWriter: w, status: no.status}
		custom(a, r)
		a.finish()
		return
	}
	h["Content-Type"] = values[1:2:2]
	w.WriteHeader(no.status)
	if r.Method != http.MethodHead {
		// The caller may be gone; there is nobody left to tell.
		_, _ = w.Write(m.body(no))
	}
}

// body returns the problem, which for a denial is the same each time.
func (m *Middleware) body(no refusal) []byte {
	if no.named && no.answer == limiter.AnswerDeny && no.kind == quotaExceeded {
		return m.policies.of(no.decision.Budget, &no.decision.Limit).denied
	}
	return no.problem()
}

// outerWait returns for how many seconds a limiter further out, that has let
// this request pass, will refuse the next: whoever comes back before is refused
// again.
func outerWait(h http.Header) int64 {
	if told, ok := readItem(h[stateField]); ok && told.left == 0 {
		return told.seconds
	}
	return 0
}

// custom returns the service's own handler for the answer, or nil.
func (m *Middleware) custom(no refusal) func(http.ResponseWriter, *http.Request) {
	switch {
	case no.err == nil && m.cfg.Denied != nil:
		return func(w http.ResponseWriter, r *http.Request) { m.cfg.Denied(w, r, no.decision) }
	case no.err != nil && m.cfg.Failed != nil && no.answer != limiter.AnswerCanceled:
		return func(w http.ResponseWriter, r *http.Request) { m.cfg.Failed(w, r, no.err) }
	default:
		return nil
	}
}

// answerer gives an answer its status where the service's own handler writes
// none, so that no refusal goes out as 200.
type answerer struct {
	http.ResponseWriter
	status int
	wrote  bool
}

// finalOnly are the fields that describe the refusal, and not an informational
// answer (1xx) before it.
var finalOnly = [...]string{"Retry-After", "Cache-Control", "Www-Authenticate",
	policyField, stateField, limitField, remainingField, resetField}

// WriteHeader writes an informational answer without the fields of the refusal,
// and notes any other status.
func (a *answerer) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		a.wrote = true
		a.ResponseWriter.WriteHeader(status)
		return
	}
	h, kept := a.Header(), make(http.Header, len(finalOnly))
	for _, name := range finalOnly {
		if values, ok := h[name]; ok {
			kept[name] = values
			delete(h, name)
		}
	}
	a.ResponseWriter.WriteHeader(status)
	maps.Copy(h, kept)
}

// Write writes the status first.
func (a *answerer) Write(p []byte) (int, error) {
	a.finish()
	return a.ResponseWriter.Write(p)
}

// FlushError writes the status first; see [http.ResponseController].
func (a *answerer) FlushError() error {
	a.finish()
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Unwrap is for [http.ResponseController].
func (a *answerer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answerer) finish() {
	if !a.wrote {
		a.WriteHeader(a.status)
	}
}

// kind is a problem type of draft-ietf-httpapi-ratelimit-headers-11, section 5.
type kind struct{ fragment, title string }

var (
	quotaExceeded   = &kind{"quota-exceeded", "Quota Exceeded"}
	reducedCapacity = &kind{"temporary-reduced-capacity", "Temporary Reduced Capacity"}
)

// problem returns the refusal as JSON after RFC 9457. Names of budgets need no
// escaping.
func (no refusal) problem() []byte {
	b := make([]byte, 0, 320)
	if no.kind == nil {
		b = append(b, `{"title":"`...)
		b = append(b, http.StatusText(no.status)...)
	} else {
		b = append(b, `{"type":"https://iana.org/assignments/http-problem-types#`...)
		b = append(b, no.kind.fragment...)
		b = append(b, `","title":"`...)
		b = append(b, no.kind.title...)
	}
	b = append(b, `","status":`...)
	b = strconv.AppendInt(b, int64(no.status), 10)
	if no.kind != nil {
		b = append(b, `,"violated-policies":[`...)
		if no.named {
			b = append(b, quoted(no.decision.Budget)...)
		}
		b = append(b, ']')
	}
	switch {
	case no.answer != limiter.AnswerNever:
	case no.decision.Limit == limiter.Blocked:
		b = append(b, `,"detail":"The limit allows this caller nothing."`...)
	default:
		b = append(b, `,"detail":"The request costs more than the limit ever allows."`...)
	}
	return append(b, '}', '\n')
}
