package middleware

import (
	"context"
	"maps"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/ration-go/ration/internal/rpcstatus"
	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

// refusal is the answer to a request that does not reach its handler.
type refusal struct {
	protocol protocol
	rpc      rpcstatus.Status // with jitter
	status   int
	kind     *kind            // of problem
	decision limiter.Decision // of the budget that refused
	named    bool             // the caller may know that budget by name
	shown    bool             // the caller may know its state
	err      error            // or why there is no decision
	next     time.Duration    // see limiter.Request
	outer    time.Duration    // see outerWait
}

// refuse answers a request that does not reach its handler.
func (m *Middleware) refuse(
	w http.ResponseWriter, r *http.Request, req *limiter.Request, err error,
) {
	f := refusal{protocol: protocolOf(r), outer: outerWait(w.Header())}
	m.fill(&f, req, err, f.protocol.patience(r))
	if f.protocol != plainHTTP {
		m.writeRPC(w, r, &f)
		return
	}
	m.writeFields(w.Header(), &f)
	if m.custom(&f) {
		w.Header().Del("Content-Type")
		m.writeCustom(w, r, &f, &req.Caller)
		return
	}
	m.writeProblem(w, r, &f)
}

// fill sets what a refusal states.
func (m *Middleware) fill(
	f *refusal, req *limiter.Request, err error, patience rpcstatus.Patience,
) {
	f.rpc = rpcstatus.Of(req, err)
	if f.rpc.Wait > 0 {
		f.rpc.Wait = max(f.rpc.Wait, f.outer)
	}
	f.rpc.Delay(m.cfg.Jitter, patience)
	if rpcstatus.Decided(err) {
		err = nil
		f.decision, f.named, f.shown, f.next = req.Decision, req.Named, req.Shown, req.Next
	}
	f.err = err
	switch f.rpc.Code {
	case rpcstatus.ResourceExhausted:
		f.status, f.kind = http.StatusTooManyRequests, quotaExceeded
	case rpcstatus.Unavailable:
		f.status = http.StatusServiceUnavailable
		if err == nil {
			f.kind = reducedCapacity
		}
	case rpcstatus.Unauthenticated:
		f.status = http.StatusUnauthorized
		if m.who.Challenge() == "" {
			// A 401 must state a challenge (RFC 9110, section 15.5.2); if there is none to
			// state, credentials would not help.
			f.status, f.rpc.Code = http.StatusForbidden, rpcstatus.PermissionDenied
		}
	case rpcstatus.Canceled, rpcstatus.DeadlineExceeded:
		f.status = http.StatusServiceUnavailable // the client has disconnected
	default:
		f.status = http.StatusInternalServerError
	}
}

// inherited are headers that outer handlers set for the handler's answer: they
// describe its body, or let a cache keep it.
var inherited = map[string]bool{
	"Accept-Ranges": true, "Age": true, "Content-Digest": true, "Content-Disposition": true,
	"Content-Encoding": true, "Content-Language": true, "Content-Length": true,
	"Content-Location": true, "Content-Range": true, "Content-Type": true, "Digest": true,
	"Etag": true, "Expires": true, "Last-Modified": true, "Pragma": true, "Repr-Digest": true,
	"Retry-After": true, "Cdn-Cache-Control": true, "Cloudflare-Cdn-Cache-Control": true,
	"Surrogate-Control": true,
}

func removeInherited(h http.Header) {
	for name := range h {
		if inherited[name] {
			delete(h, name)
		}
	}
}

// problemType is the media type of the default answer (RFC 9457).
const problemType = "application/problem+json"

// writeFields writes the header fields of the default answer. Fields that outer handlers
// have set, such as those of CORS, stay unless they describe another body.
func (m *Middleware) writeFields(h http.Header, f *refusal) {
	removeInherited(h)
	values := [3]string{"no-store", problemType} // one allocation
	h["Cache-Control"], h["Content-Type"] = values[:1:1], values[1:2:2]
	if f.rpc.Wait > 0 {
		values[2] = decimal(rpcstatus.Seconds(f.rpc.Wait))
		h["Retry-After"] = values[2:]
	}
	if f.err == nil {
		removeState(h)
	}
	if f.shown && f.named && m.cfg.Headers != Off {
		m.writeState(h, &f.decision, f.next)
	}
	if f.status == http.StatusUnauthorized {
		h.Set("Www-Authenticate", m.who.Challenge())
	}
}

// writeProblem writes the status and the body of the default answer.
func (m *Middleware) writeProblem(w http.ResponseWriter, r *http.Request, f *refusal) {
	w.WriteHeader(f.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(m.body(f)) // it fails if the client has disconnected
	}
}

// custom reports whether the service writes the answer itself.
func (m *Middleware) custom(f *refusal) bool {
	if f.err == nil {
		return m.cfg.Denied != nil
	}
	return m.cfg.Failed != nil && !f.rpc.Gone()
}

// writeCustom lets the service write the answer.
func (m *Middleware) writeCustom(
	w http.ResponseWriter, r *http.Request, f *refusal, c *limiter.Caller,
) {
	outer := r.Context()
	if m.cfg.Caller && !c.Principal.Nobody() {
		outer = keying.WithCaller(outer, *c)
	}
	ctx := &refused{Context: outer, middleware: m, refusal: *f,
		writer: answerer{ResponseWriter: w, status: f.status}}
	if f.err == nil {
		m.cfg.Denied(&ctx.writer, r.WithContext(ctx), f.decision)
	} else {
		m.cfg.Failed(&ctx.writer, r.WithContext(ctx), f.err)
	}
	ctx.writer.finish()
}

// refused is the context of Config.Denied and Config.Failed, in which Deny finds the
// default answer. It holds their ResponseWriter, too, to save an allocation.
type refused struct {
	context.Context
	middleware *Middleware
	refusal    refusal
	writer     answerer
}

type refusedKey struct{}

func (c *refused) Value(key any) any {
	if key == (refusedKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Deny writes the answer that the middleware would have written. [Config.Denied]
// and [Config.Failed] may call it after they have added headers or logged, with
// their request, and with their ResponseWriter or any wrapper of it. For any other
// request it writes a 429 that names no budget.
func Deny(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", problemType)
	if c, ok := r.Context().Value(refusedKey{}).(*refused); ok {
		c.middleware.writeProblem(w, r, &c.refusal)
		return
	}
	var m Middleware
	m.writeProblem(w, r, &refusal{status: http.StatusTooManyRequests, kind: quotaExceeded})
}

// body returns the body of the default answer. That of a denial is cached.
func (m *Middleware) body(f *refusal) []byte {
	if f.named && f.rpc.Wait > 0 && f.kind == quotaExceeded {
		return m.texts.of(f.decision.Budget, &f.decision.Limit).denied
	}
	return f.problem()
}

// outerWait returns for how long an outer limiter, which has allowed this request, will
// refuse the next one.
func outerWait(h http.Header) time.Duration {
	if outer, ok := readItem(h[stateField]); ok && outer.left == 0 {
		return time.Duration(min(outer.seconds, math.MaxInt32)) * time.Second
	}
	return 0
}

// answerer is the ResponseWriter of Config.Denied and Config.Failed. If they write
// no status, it writes that of the refusal rather than 200.
type answerer struct {
	http.ResponseWriter
	status int
	wrote  bool
}

// finalOnly are the fields that describe the refusal. An informational answer (1xx)
// before it has none of them.
var finalOnly = [...]string{"Retry-After", "Cache-Control", "Www-Authenticate",
	policyField, stateField, limitField, remainingField, resetField}

// WriteHeader writes an informational answer without the fields of the refusal,
// and records any other status.
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

// problem returns the refusal as JSON (RFC 9457). Names of budgets need no escaping.
func (f *refusal) problem() []byte {
	b := make([]byte, 0, 320)
	if f.kind == nil {
		b = append(b, `{"title":"`...)
		b = append(b, http.StatusText(f.status)...)
	} else {
		b = append(b, `{"type":"https://iana.org/assignments/http-problem-types#`...)
		b = append(b, f.kind.fragment...)
		b = append(b, `","title":"`...)
		b = append(b, f.kind.title...)
	}
	b = append(b, `","status":`...)
	b = strconv.AppendInt(b, int64(f.status), 10)
	if f.kind != nil {
		b = append(b, `,"violated-policies":[`...)
		if f.named {
			b = append(b, quoted(f.decision.Budget)...)
		}
		b = append(b, ']')
	}
	switch {
	case !f.rpc.Never():
	case f.rpc.Blocked():
		b = append(b, `,"detail":"The limit allows this caller nothing."`...)
	default:
		b = append(b, `,"detail":"The request costs more than the limit ever allows."`...)
	}
	return append(b, '}', '\n')
}
