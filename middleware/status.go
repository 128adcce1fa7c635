package middleware

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
)

// recorder is a ResponseWriter that knows the status that was really sent. What
// handlers get is made by its method writer, with the optional interfaces that
// the inner one has.
type recorder struct {
	inner   http.ResponseWriter
	status  int  // the final one; 0: none yet
	unknown bool // the connection was taken over, or the answer is cut off
}

// final returns the status that was sent, and whether it is known.
func (w *recorder) final() (status int, ok bool) {
	if w.status == 0 {
		return http.StatusOK, !w.unknown // net/http says so for a silent handler
	}
	return w.status, !w.unknown
}

// note keeps the first status that is final.
func (w *recorder) note(status int) {
	informational := status < http.StatusOK && status != http.StatusSwitchingProtocols
	if w.status == 0 && !informational {
		w.status = status
	}
}

// check notes an answer that could not be sent whole. One that must have no body,
// or a shorter one, is sent.
func (w *recorder) check(err error) {
	if err != nil && !errors.Is(err, http.ErrBodyNotAllowed) &&
		!errors.Is(err, http.ErrContentLength) {
		w.unknown = true
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
	w.note(http.StatusOK)
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
		f.w.note(http.StatusOK)
		f.w.check(err)
	}
	return err
}

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.w.inner).Hijack()
	if err == nil {
		h.w.unknown = true
	}
	return conn, rw, err
}

func (r readerFrom) ReadFrom(src io.Reader) (int64, error) {
	n, err := r.w.inner.(io.ReaderFrom).ReadFrom(src)
	if n > 0 { // nothing read is nothing written, and a status may follow
		r.w.note(http.StatusOK)
	}
	r.w.check(err)
	return n, err
}

func (p pusher) Push(target string, opts *http.PushOptions) error {
	return p.w.inner.(http.Pusher).Push(target, opts)
}

func (s stringWriter) WriteString(text string) (int, error) {
	s.w.note(http.StatusOK)
	n, err := s.w.inner.(io.StringWriter).WriteString(text)
	s.w.check(err)
	return n, err
}

func (c closeNotifier) CloseNotify() <-chan bool {
	//lint:ignore SA1019 handlers that still use it go on to work
	return c.w.inner.(http.CloseNotifier).CloseNotify()
}
