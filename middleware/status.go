package middleware

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
)

// recorder is a ResponseWriter that records the final status. Handlers get the
// result of its method writer, which has the optional interfaces of inner.
type recorder struct {
	inner  http.ResponseWriter
	status int  // the first final one; 0 if none was written
	twice  bool // the handler wrote another status later
	lost   bool // the connection was taken over, or the answer is cut off
	rpc    bool // the answer is of a protocol that states failures with status 200
}

// final returns the status that was sent, and whether it is known.
func (w *recorder) final() (status int, ok bool) {
	return w.status, w.written() && !w.twice && !w.lost && !w.rpc
}

// written reports whether the status was sent. net/http answers 200 for a handler
// that writes none, but an outer handler that can still write an error may come
// first. Writers that only note the status until the body comes, as gin's does,
// say so by the method Written.
func (w *recorder) written() bool {
	if inner, ok := w.inner.(interface{ Written() bool }); ok && !inner.Written() {
		return false
	}
	return w.status != 0
}

// note records a status that the handler wrote, or caused by writing a body. Of
// two different ones, net/http sends the first, and other servers the last.
func (w *recorder) note(status int) {
	switch informational := status < http.StatusOK && status != http.StatusSwitchingProtocols; {
	case informational:
	case w.status == 0:
		w.status = status
		w.rpc = status == http.StatusOK && isRPC(w.inner.Header().Get("Content-Type"))
	case w.status != status:
		w.twice = true
	}
}

// noteBody records the status 200 of a body that has no other.
func (w *recorder) noteBody() {
	if w.status == 0 {
		w.note(http.StatusOK)
	}
}

// rpcTypes begin the content types of answers whose HTTP status is 200 also if
// the call has failed: gRPC, gRPC-Web and the streams of Connect. Its unary calls
// have real statuses.
var rpcTypes = [...]string{"application/grpc", "application/connect+"}

// isRPC reports whether the content type of an answer is one of rpcTypes.
func isRPC(contentType string) bool {
	return slices.ContainsFunc(rpcTypes[:], func(t string) bool {
		return len(contentType) >= len(t) && strings.EqualFold(contentType[:len(t)], t)
	})
}

// check notes an answer that could not be sent whole. One that must have no body,
// or a shorter one, is sent.
func (w *recorder) check(err error) {
	if err != nil && !errors.Is(err, http.ErrBodyNotAllowed) &&
		!errors.Is(err, http.ErrContentLength) {
		w.lost = true
	}
}

// Header returns the header of the inner writer.
func (w *recorder) Header() http.Header { return w.inner.Header() }

// WriteHeader notes the status, once the inner writer has accepted it.
func (w *recorder) WriteHeader(status int) {
	w.inner.WriteHeader(status)
	w.note(status)
}

// Write writes with status 200, unless there is one.
func (w *recorder) Write(p []byte) (int, error) {
	w.noteBody()
	n, err := w.inner.Write(p)
	w.check(err)
	return n, err
}

// Unwrap is for [http.ResponseController], which finds what an inner writer can
// do even where that one has to be unwrapped, too.
func (w *recorder) Unwrap() http.ResponseWriter { return unwrapped{w} }

// unwrapped is a recorder on the way to what it wraps. It keeps in sight what
// only a ResponseController can do; all else is beyond it.
type unwrapped struct{ *recorder }

// Unwrap returns the inner writer.
func (u unwrapped) Unwrap() http.ResponseWriter { return u.inner }

// FlushError sends the status 200, unless there is one.
func (u unwrapped) FlushError() error { return flusher{u.recorder}.FlushError() }

// Hijack takes the connection over, whose status is unknown from then on.
func (u unwrapped) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return hijacker{u.recorder}.Hijack()
}

// The optional interfaces of a ResponseWriter, for those that have them.
type (
	flusher       struct{ w *recorder }
	hijacker      struct{ w *recorder }
	readerFrom    struct{ w *recorder }
	pusher        struct{ w *recorder }
	stringWriter  struct{ w *recorder }
	closeNotifier struct{ w *recorder }
)

func (f flusher) Flush() { _ = f.FlushError() } // the same without its error

func (f flusher) FlushError() error {
	err := http.NewResponseController(f.w.inner).Flush()
	if !errors.Is(err, http.ErrNotSupported) {
		f.w.noteBody()
		f.w.check(err)
	}
	return err
}

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.w.inner).Hijack()
	if err == nil {
		h.w.lost = true
	}
	return conn, rw, err
}

func (r readerFrom) ReadFrom(src io.Reader) (int64, error) {
	n, err := r.w.inner.(io.ReaderFrom).ReadFrom(src)
	if n > 0 { // nothing read is nothing written, and a status may follow
		r.w.noteBody()
	}
	r.w.check(err)
	return n, err
}

func (p pusher) Push(target string, opts *http.PushOptions) error {
	return p.w.inner.(http.Pusher).Push(target, opts)
}

func (s stringWriter) WriteString(text string) (int, error) {
	s.w.noteBody()
	n, err := s.w.inner.(io.StringWriter).WriteString(text)
	s.w.check(err)
	return n, err
}

func (c closeNotifier) CloseNotify() <-chan bool {
	//lint:ignore SA1019 handlers that still use it go on to work
	return c.w.inner.(http.CloseNotifier).CloseNotify()
}
