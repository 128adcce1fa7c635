package middleware_test

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

// both runs a test with the handler alone, behind two mounts of the limiter, and
// behind one that reads the status, over HTTP/1.1 and HTTP/2.
func both(t *testing.T, h http.Handler, test func(t *testing.T, server *httptest.Server)) {
	f := newFixture(t, perHour(1000))
	limit := f.middleware(t, byAddress, keying.Pattern, middleware.Config{})
	reads := newFixture(t, perHour(1000)).middleware(t, byAddress, keying.Pattern, middleware.Config{
		Settles: true, ByStatus: func(int, int64) int64 { return 0 },
	})
	for name, handler := range map[string]http.Handler{
		"without": h, "with": limit(limit(h)), "status": reads(h),
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http2=%v", name, http2), func(t *testing.T) {
				server := httptest.NewUnstartedServer(handler)
				server.EnableHTTP2 = http2
				if http2 {
					server.StartTLS()
				} else {
					server.Start()
				}
				defer server.Close()
				test(t, server)
			})
		}
	}
}

// Each line of the handler's report must be the same behind the limiter.
func TestPassThrough_WhatAResponseWriterCanDo(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var report bytes.Buffer
		line := func(name string, value any) { fmt.Fprintln(&report, name, value) }
		_, flusher := w.(http.Flusher)
		_, hijacker := w.(http.Hijacker)
		_, reader := w.(io.ReaderFrom)
		pusher, pushes := w.(http.Pusher)
		_, writer := w.(io.StringWriter)
		line("flusher", flusher)
		line("hijacker", hijacker)
		line("reader-from", reader)
		line("string-writer", writer)
		line("pusher", pushes)
		if pushes {
			line("push", pusher.Push("/pushed", nil))
		}
		//lint:ignore SA1019 some handlers still use it
		_, notifier := w.(http.CloseNotifier)
		line("close-notifier", notifier)
		control := http.NewResponseController(w)
		soon := time.Now().Add(time.Hour)
		line("read-deadline", control.SetReadDeadline(soon))
		line("write-deadline", control.SetWriteDeadline(soon))
		line("full-duplex", control.EnableFullDuplex())
		line("body", r.Body != nil)
		w.Header().Set("Trailer", "X-Trailer")
		_, _ = w.Write(report.Bytes())
		line("flush", control.Flush())
		w.Header().Set("X-Trailer", "trailed")
	})
	reports := map[string]string{}
	both(t, h, func(t *testing.T, server *httptest.Server) {
		resp, body := exchange(t, server, "GET", "/", "")
		assert.Equal(t, "trailed", resp.Trailer.Get("X-Trailer"))
		if known, ok := reports[resp.Proto]; ok {
			assert.Equal(t, known, body)
		}
		reports[resp.Proto] = body
	})
	require.Len(t, reports, 2)
	assert.Contains(t, reports["HTTP/1.1"], "hijacker true\nreader-from true\n")
	assert.Contains(t, reports["HTTP/2.0"], "pusher true\n")
}

func TestPassThrough_ADeadlineEndsTheAnswer(t *testing.T) {
	both(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		control := http.NewResponseController(w)
		_, _ = io.WriteString(w, "begun")
		_ = control.Flush()
		assert.NoError(t, control.SetWriteDeadline(time.Now().Add(-time.Second)))
		_, _ = io.WriteString(w, "too late")
		_ = control.Flush()
	}), func(t *testing.T, server *httptest.Server) {
		resp, err := server.Client().Get(server.URL)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		assert.Error(t, err)
		assert.Equal(t, "begun", string(body))
	})
}

func TestPassThrough_ServerSentEventsArriveWhileTheHandlerRuns(t *testing.T) {
	next := make(chan struct{})
	both(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
			<-next
		}
	}), func(t *testing.T, server *httptest.Server) {
		resp, err := server.Client().Get(server.URL)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		lines := bufio.NewReader(resp.Body)
		for i := range 3 {
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprintf("data: %d\n", i), line)
			_, _ = lines.ReadString('\n')
			next <- struct{}{}
		}
	})
}

func TestPassThrough_FilesAreSentWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.bin")
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	both(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, path)
	}), func(t *testing.T, server *httptest.Server) {
		resp, body := exchange(t, server, "GET", "/", "")
		assert.Equal(t, 200, resp.StatusCode)
		assert.EqualValues(t, len(content), resp.ContentLength)
		assert.True(t, body == string(content))
	})
}

// echo is a websocket that sends every byte back, as far as a limiter is
// concerned: a connection that has left HTTP.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"+
		"Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	_ = rw.Flush()
	_, _ = io.Copy(conn, rw)
})

// upgrade opens a websocket.
func upgrade(t *testing.T, server *httptest.Server) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	r, err := http.NewRequest("GET", server.URL, nil)
	require.NoError(t, err)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	r.Header.Set("Sec-WebSocket-Version", "13")
	r.Header.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
	require.NoError(t, r.Write(conn))
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, r)
	require.NoError(t, err)
	return conn, in, resp
}

func TestPassThrough_AWebsocketCountsWhenItIsOpened(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "all", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(2)})
	server := serve(t, f.middleware(t, byAddress, keying.Pattern, middleware.Config{})(echo))
	conn, in, resp := upgrade(t, server)
	require.Equal(t, 101, resp.StatusCode)
	assert.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", resp.Header.Get("Sec-Websocket-Accept"))
	_, _, resp = upgrade(t, server)
	require.Equal(t, 101, resp.StatusCode)
	_, _, resp = upgrade(t, server)
	assert.Equal(t, 429, resp.StatusCode)
	assert.Equal(t, "30", resp.Header.Get("Retry-After"))
	for i := range 1000 { // messages are free, also while the account is empty
		message := fmt.Sprintf("message %d\n", i)
		_, err := io.WriteString(conn, message)
		require.NoError(t, err)
		got, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, message, got)
	}
	assert.Equal(t, "http unmatched allow,http unmatched allow,http unmatched deny",
		strings.Join(f.seen.take(), ","))
}
