package middleware

import (
	"io"
	"net/http"
)

// The optional interfaces of a ResponseWriter, as bits.
const (
	flushes = 1 << iota
	hijacks
	readsFrom
	pushes
	writesStrings
	notifiesClose

	serverHTTP1 = flushes | hijacks | readsFrom | writesStrings | notifiesClose
	serverHTTP2 = flushes | pushes | writesStrings | notifiesClose
)

// optional returns the optional interfaces that w has.
func optional(w http.ResponseWriter) (set int) {
	if _, ok := w.(http.Flusher); ok {
		set |= flushes
	}
	if _, ok := w.(http.Hijacker); ok {
		set |= hijacks
	}
	if _, ok := w.(io.ReaderFrom); ok {
		set |= readsFrom
	}
	if _, ok := w.(http.Pusher); ok {
		set |= pushes
	}
	if _, ok := w.(io.StringWriter); ok {
		set |= writesStrings
	}
	//lint:ignore SA1019 handlers that still use it go on to work
	if _, ok := w.(http.CloseNotifier); ok {
		set |= notifiesClose
	}
	return set
}

// writer returns what the handler gets: the recorder, with the same optional
// interfaces as the inner writer, so that handlers that look for them, for
// server-sent events, websockets or files, do what they would have done. The
// deprecated CloseNotifier is kept only of the writers of net/http.
func (w *recorder) writer() http.ResponseWriter {
	set := optional(w.inner)
	switch set {
	case serverHTTP1:
		return struct {
			*recorder
			flusher
			hijacker
			readerFrom
			stringWriter
			closeNotifier
		}{w, flusher{w}, hijacker{w}, readerFrom{w}, stringWriter{w}, closeNotifier{w}}
	case serverHTTP2:
		return struct {
			*recorder
			flusher
			pusher
			stringWriter
			closeNotifier
		}{w, flusher{w}, pusher{w}, stringWriter{w}, closeNotifier{w}}
	}
	return combinations[set&^notifiesClose](w)
}

// combinations are all sets of the five interfaces.
var combinations = [...]func(w *recorder) http.ResponseWriter{
	0: func(w *recorder) http.ResponseWriter { return w },
	flushes: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			flusher
		}{w, flusher{w}}
	},
	hijacks: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			hijacker
		}{w, hijacker{w}}
	},
	flushes | hijacks: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			flusher
			hijacker
		}{w, flusher{w}, hijacker{w}}
	},
	readsFrom: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			readerFrom
		}{w, readerFrom{w}}
	},
	flushes | readsFrom: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			flusher
			readerFrom
		}{w, flusher{w}, readerFrom{w}}
	},
	hijacks | readsFrom: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			hijacker
			readerFrom
		}{w, hijacker{w}, readerFrom{w}}
	},
	flushes | hijacks | readsFrom: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			flusher
			hijacker
			readerFrom
		}{w, flusher{w}, hijacker{w}, readerFrom{w}}
	},
	pushes: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			pusher
		}{w, pusher{w}}
	},
	flushes | pushes: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			flusher
			pusher
		}{w, flusher{w}, pusher{w}}
	},
	hijacks | pushes: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			hijacker
			pusher
		}{w, hijacker{w}, pusher{w}}
	},
	flushes | hijacks | pushes: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			flusher
			hijacker
			pusher
		}{w, flusher{w}, hijacker{w}, pusher{w}}
	},
	readsFrom | pushes: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			readerFrom
			pusher
		}{w, readerFrom{w}, pusher{w}}
	},
	flushes | readsFrom | pushes: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			flusher
			readerFrom
			pusher
		}{w, flusher{w}, readerFrom{w}, pusher{w}}
	},
	hijacks | readsFrom | pushes: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			hijacker
			readerFrom
			pusher
		}{w, hijacker{w}, readerFrom{w}, pusher{w}}
	},
	flushes | hijacks | readsFrom | pushes: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			flusher
			hijacker
			readerFrom
			pusher
		}{w, flusher{w}, hijacker{w}, readerFrom{w}, pusher{w}}
	},
	writesStrings: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			stringWriter
		}{w, stringWriter{w}}
	},
	flushes | writesStrings: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			flusher
			stringWriter
		}{w, flusher{w}, stringWriter{w}}
	},
	hijacks | writesStrings: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			hijacker
			stringWriter
		}{w, hijacker{w}, stringWriter{w}}
	},
	flushes | hijacks | writesStrings: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			flusher
			hijacker
			stringWriter
		}{w, flusher{w}, hijacker{w}, stringWriter{w}}
	},
	readsFrom | writesStrings: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			readerFrom
			stringWriter
		}{w, readerFrom{w}, stringWriter{w}}
	},
	flushes | readsFrom | writesStrings: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			flusher
			readerFrom
			stringWriter
		}{w, flusher{w}, readerFrom{w}, stringWriter{w}}
	},
	hijacks | readsFrom | writesStrings: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			hijacker
			readerFrom
			stringWriter
		}{w, hijacker{w}, readerFrom{w}, stringWriter{w}}
	},
	flushes | hijacks | readsFrom | writesStrings: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			flusher
			hijacker
			readerFrom
			stringWriter
		}{w, flusher{w}, hijacker{w}, readerFrom{w}, stringWriter{w}}
	},
	pushes | writesStrings: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			pusher
			stringWriter
		}{w, pusher{w}, stringWriter{w}}
	},
	flushes | pushes | writesStrings: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			flusher
			pusher
			stringWriter
		}{w, flusher{w}, pusher{w}, stringWriter{w}}
	},
	hijacks | pushes | writesStrings: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			hijacker
			pusher
			stringWriter
		}{w, hijacker{w}, pusher{w}, stringWriter{w}}
	},
	flushes | hijacks | pushes | writesStrings: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			flusher
			hijacker
			pusher
			stringWriter
		}{w, flusher{w}, hijacker{w}, pusher{w}, stringWriter{w}}
	},
	readsFrom | pushes | writesStrings: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			readerFrom
			pusher
			stringWriter
		}{w, readerFrom{w}, pusher{w}, stringWriter{w}}
	},
	flushes | readsFrom | pushes | writesStrings: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			flusher
			readerFrom
			pusher
			stringWriter
		}{w, flusher{w}, readerFrom{w}, pusher{w}, stringWriter{w}}
	},
	hijacks | readsFrom | pushes | writesStrings: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			hijacker
			readerFrom
			pusher
			stringWriter
		}{w, hijacker{w}, readerFrom{w}, pusher{w}, stringWriter{w}}
	},
	flushes | hijacks | readsFrom | pushes | writesStrings: func(w *recorder) http.ResponseWriter {
		return struct {
			*recorder
			flusher
			hijacker
			readerFrom
			pusher
			stringWriter
		}{w, flusher{w}, hijacker{w}, readerFrom{w}, pusher{w}, stringWriter{w}}
	},
}
