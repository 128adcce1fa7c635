package middleware

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/felixge/httpsnoop"
)

// recorder records the final status of an answer. Handlers get the ResponseWriter
// that its method writer returns, which has the optional interfaces of inner.
type recorder struct {
	inner  http.ResponseWriter
	status int  // the first final one; 0 if none was written
	twice  bool // the handler wrote another status later
	lost   bool // the connection was hijacked, or a write failed
	rpc    bool // the answer is that of an RPC, which may have failed with status 200
}

// errStatus is the error if a handler has not written one status.
var errStatus = errors.New("the handler wrote no status, or two")

// final returns the status that was sent, or 0 if it is unknown. An answer that was
// cut off, a hijack and an RPC are no mistakes of the handler, and no error.
func (w *recorder) final() (status int, err error) {
	switch {
	case w.lost:
		return 0, nil
	case w.twice || !w.written():
		return 0, errStatus
	case w.rpc:
		return 0, nil
	}
	return w.status, nil
}

// written reports whether the status was sent. net/http answers 200 for a handler
// that writes none, unless an outer handler writes an error first. A ResponseWriter
// that only records the status until the body comes, such as gin's, has a method
// Written.
func (w *recorder) written() bool {
	for inner := w.inner; ; {
		if records, ok := inner.(interface{ Written() bool }); ok && !records.Written() {
			return false
		}
		wrapper, ok := inner.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w.status != 0
		}
		inner = wrapper.Unwrap()
	}
}

// note records a status that the handler wrote, or caused by writing a body. If
// there are two different ones, net/http sends the first, and other servers the last.
func (w *recorder) note(status int) {
	switch informational := status < http.StatusOK && status != http.StatusSwitchingProtocols; {
	case informational:
	case w.status == 0:
		w.status = status
		w.rpc = status == http.StatusOK && isRPC(w.inner.Header())
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

// rpcTypes are the prefixes of the content types of answers whose HTTP status is 200
// even if the call has failed: gRPC, gRPC-Web and the streams of Connect. Unary calls
// of Connect have real statuses.
var rpcTypes = [...]string{"application/grpc", "application/connect+"}

// isRPC reports whether the content type of an answer begins with one of rpcTypes.
// net/http sends a header that a handler has set in another spelling, too.
func isRPC(h http.Header) bool {
	for name, values := range h {
		if strings.EqualFold(name, "Content-Type") && len(values) > 0 &&
			slices.ContainsFunc(rpcTypes[:], func(t string) bool {
				return len(values[0]) >= len(t) && strings.EqualFold(values[0][:len(t)], t)
			}) {
			return true
		}
	}
	return false
}

// check records that a write failed. An answer whose body is not allowed or too long
// is sent nonetheless.
func (w *recorder) check(err error) {
	if err != nil && !errors.Is(err, http.ErrBodyNotAllowed) &&
		!errors.Is(err, http.ErrContentLength) {
		w.lost = true
	}
}

// writer returns the ResponseWriter for the handler. It has the optional interfaces
// of inner, and records what is sent through them.
func (w *recorder) writer() http.ResponseWriter {
	return httpsnoop.Wrap(w.inner, httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) {
				next(status) // which panics for a status that is not valid
				w.note(status)
			}
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(p []byte) (int, error) {
				w.noteBody()
				n, err := next(p)
				w.check(err)
				return n, err
			}
		},
		WriteString: func(next httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) {
				w.noteBody()
				n, err := next(s)
				w.check(err)
				return n, err
			}
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) {
				n, err := next(src)
				if n > 0 { // otherwise nothing was written, and a status may follow
					w.noteBody()
				}
				w.check(err)
				return n, err
			}
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() {
				next()
				w.noteBody()
			}
		},
		FlushError: func(next httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error {
				err := next()
				if !errors.Is(err, http.ErrNotSupported) {
					w.noteBody()
					w.check(err)
				}
				return err
			}
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, rw, err := next()
				w.lost = w.lost || err == nil
				return conn, rw, err
			}
		},
	})
}
