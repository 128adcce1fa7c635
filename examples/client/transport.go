package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dunglas/httpsfv"
)

// Transport is an http.RoundTripper that keeps to the limits that servers state. It
// sends a refused request (429, or 503 with Retry-After) again after the wait. After an
// answer that says that nothing is left (RateLimit, r=0), it holds the next request back
// until something is (t), but for no longer than MaxWait. It never waits beyond the
// deadline of a request.
//
// The zero Transport is usable. It is safe for concurrent use and keeps no goroutine:
// whoever sends a request waits. Requests that wait together are sent together; a limit
// that they share may refuse some of them once more.
type Transport struct {
	// Base sends the requests; nil means http.DefaultTransport.
	Base http.RoundTripper
	// MaxWait is the longest wait; 0 means one minute. A refusal that states a longer
	// one is returned as it is, and until its wait has passed, other requests that
	// are limited together with it fail with a *WaitError.
	MaxWait time.Duration
	// Tries is how often one request is sent at most; 0 means 3.
	Tries int
	// Key says which requests are limited together; nil means those to one
	// scheme and host. A client that acts for several users has a Transport for
	// each, or a key.
	Key func(*http.Request) string

	mu    sync.Mutex
	until map[string]time.Time // by key: nothing is sent before; at most maxKeys
}

// maxKeys is for how many keys a Transport holds requests back.
const maxKeys = 1000

// WaitError is the error of a request that was not sent, because its server asked for a
// longer wait than MaxWait, or one beyond the request's deadline.
type WaitError struct{ Wait time.Duration }

// Error says how long the server asked to wait.
func (e *WaitError) Error() string {
	return fmt.Sprintf("client: the server asks to wait for %v", e.Wait)
}

// RoundTrip sends the request, when the server will have it. The error is a
// *WaitError, that of the request's context, or that of Base.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key := t.key(r)
	for try := 1; ; try++ {
		if err := t.wait(r.Context(), key); err != nil {
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, err
		}
		resp, err := t.base().RoundTrip(r)
		if err != nil {
			return nil, err
		}
		refused := retryAfter(resp)
		if refused > 0 {
			t.hold(key, refused) // rather than what RateLimit states
		} else {
			t.hold(key, min(exhausted(resp.Header), t.maxWait()))
		}
		if refused == 0 || refused > t.longest(r.Context()) || try >= t.tries() {
			return resp, nil
		}
		again, err := rewind(r)
		if err != nil {
			return resp, nil // the body is spent: the caller has to decide
		}
		drain(resp.Body, refused)
		r = again
	}
}

// drain reads the body of a refusal, so that its connection can be used again, and closes
// it: after 64 KiB, or after the wait, if it has not ended by then.
func drain(body io.ReadCloser, wait time.Duration) {
	late := time.AfterFunc(wait, func() { _ = body.Close() })
	defer late.Stop()
	_, _ = io.Copy(io.Discard, io.LimitReader(body, 64<<10))
	_ = body.Close()
}

// wait returns when requests of the key may be sent.
func (t *Transport) wait(ctx context.Context, key string) error {
	for {
		wait := t.left(key)
		switch {
		case wait <= 0:
			return ctx.Err()
		case ctx.Err() != nil:
			return ctx.Err()
		case wait > t.longest(ctx):
			return &WaitError{wait}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// longest returns the longest wait of a request.
func (t *Transport) longest(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(t.maxWait(), time.Until(deadline))
	}
	return t.maxWait()
}

// left returns for how long the key is held back, and forgets what has passed.
func (t *Transport) left(key string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	wait := time.Until(t.until[key])
	if wait <= 0 {
		delete(t.until, key)
	}
	return wait
}

// hold keeps requests of the key back for a time, from now on.
func (t *Transport) hold(key string, wait time.Duration) {
	if wait == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.until == nil {
		t.until = map[string]time.Time{}
	}
	if until := time.Now().Add(wait); until.After(t.until[key]) {
		t.until[key] = until
		t.bound()
	}
}

// bound forgets the holds that have passed if there are too many, or else the one that
// ends first.
func (t *Transport) bound() {
	if len(t.until) <= maxKeys {
		return
	}
	now, first := time.Now(), ""
	for key, until := range t.until {
		if !until.After(now) {
			delete(t.until, key)
		} else if first == "" || until.Before(t.until[first]) {
			first = key
		}
	}
	if len(t.until) > maxKeys {
		delete(t.until, first)
	}
}

// retryAfter returns the wait that a refusal states, in seconds or as a date
// (RFC 9110, section 10.2.3); 0 for any other answer.
func retryAfter(resp *http.Response) time.Duration {
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
	default:
		return 0
	}
	stated := resp.Header.Get("Retry-After")
	if isDigits(stated) {
		seconds, err := strconv.ParseInt(stated, 10, 64)
		if most := int64(math.MaxInt64 / time.Second); err != nil || seconds > most {
			seconds = most // longer than anybody waits
		}
		return time.Duration(seconds) * time.Second
	}
	date, err := http.ParseTime(stated)
	if err != nil {
		return 0
	}
	// The server's clock may differ from this one.
	now, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(date.Sub(now), 0)
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// exhausted returns for how long nothing is left, as RateLimit states it
// (draft-ietf-httpapi-ratelimit-headers-11, section 4); 0 if something is. A
// field that is malformed, or comes from a cache, is no field.
func exhausted(h http.Header) time.Duration {
	if age := h.Get("Age"); age != "" && age != "0" {
		return 0
	}
	list, err := httpsfv.UnmarshalList(h.Values("RateLimit"))
	if err != nil {
		return 0
	}
	longest := int64(0)
	for _, member := range list {
		if item, ok := member.(httpsfv.Item); ok {
			left, _ := item.Params.Get("r")
			seconds, _ := item.Params.Get("t")
			if s, ok := seconds.(int64); ok && left == int64(0) {
				longest = max(longest, s)
			}
		}
	}
	return time.Duration(min(longest, 1<<31)) * time.Second
}

// rewind returns the request for another try.
func rewind(r *http.Request) (*http.Request, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return r, nil
	}
	if r.GetBody == nil {
		return nil, fmt.Errorf("client: the body of %s cannot be sent again", r.URL.Redacted())
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, err
	}
	again := r.Clone(r.Context())
	again.Body = body
	return again, nil
}

func (t *Transport) key(r *http.Request) string {
	if t.Key != nil {
		return t.Key(r)
	}
	return r.URL.Scheme + "://" + r.URL.Host
}

func (t *Transport) base() http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	return http.DefaultTransport
}

func (t *Transport) maxWait() time.Duration {
	if t.MaxWait > 0 {
		return t.MaxWait
	}
	return time.Minute
}

func (t *Transport) tries() int {
	if t.Tries > 0 {
		return t.Tries
	}
	return 3
}
