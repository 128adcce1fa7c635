package middleware_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

// call is one request. Its protocol is what its answer should be.
type call struct {
	method, url string
	header      map[string]string
	protocol    string // empty: HTTP
}

const connectVersion = "Connect-Protocol-Version"

// post is a POST with a content type and other headers, by name and value.
func post(protocol, contentType string, header ...string) call {
	c := call{"POST", "/pkg.Orders/Get", map[string]string{"Content-Type": contentType}, protocol}
	for i := 0; i < len(header); i += 2 {
		c.header[header[i]] = header[i+1]
	}
	return c
}

func query(protocol, query string) call {
	return call{"GET", "/pkg.Orders/Get?" + query, nil, protocol}
}

// calls are requests of clients, and requests that only look like them.
var calls = []call{
	post("grpc", "application/grpc"), post("grpc", "application/grpc+proto"),
	post("grpc", "application/grpc;charset=x"), post("grpc", "application/grpc+json ; x=y"),
	post("grpc", "Application/gRPC"), post("grpc", "application/grpc", connectVersion, "1"),
	post("grpc-web", "application/grpc-web"), post("grpc-web", "application/grpc-web+proto"),
	post("grpc-web", "application/grpc-web+json; charset=utf-8"),
	post("grpc-web-text", "application/grpc-web-text"),
	post("grpc-web-text", "application/grpc-web-text+proto"),
	post("connect", "application/json", connectVersion, "1"),
	post("connect", "application/proto", connectVersion, "1"),
	post("connect", "application/json; charset=utf-8", connectVersion, "1"),
	post("stream", "application/connect+json"), post("stream", "application/connect+proto"),
	post("stream", "application/connect+proto", connectVersion, "1"),
	query("connect", "connect=v1&encoding=json&message=%7B%7D"),
	query("connect", "message=&encoding=proto&base64=1&connect=v1"),
	query("connect", "connect=v1&connect=v2&encoding=json&message="),

	post("", ""), post("", "application/json"), post("", "application/proto"),
	post("", "application/grpcx"), post("", "application/grpc-webby"), post("", "application/grpc+"),
	post("", "application/grpc-web+<script>"), post("", "application/connect"),
	post("", "application/connect+"), post("", "application/connectjson"),
	post("", "application/grpc, application/grpc"), post("", "text/plain; application/grpc"),
	post("", "application/grpc+"+strings.Repeat("x", 64)), post("", " application/grpc"),
	post("", "application/json", connectVersion, "2"), post("", "application/json", connectVersion, ""),
	post("", "text/html", connectVersion, "1"), post("", "", connectVersion, "1"),
	post("", "application/x-www-form-urlencoded", connectVersion, "1"),
	post("", "multipart/form-data; boundary=x", connectVersion, "1"),
	query("", ""), query("", "connect=v1"), query("", "connect=v1&message="), query("", "connect=v1&encoding=json"),
	query("", "connect=v1&encoding=&message="), query("", "connect=v2&encoding=json&message="),
	query("", "connect=v2&connect=v1&encoding=json&message="), query("", "connect=v1;encoding=json;message="),
	query("connect", "xconnect=v1&connect=v1&encoding=json&xmessage=&message="),
	query("", "xconnect=v1&encoding=json&message="), query("", "connect=%zz&encoding=json&message="),
	{"PUT", "/", map[string]string{"Content-Type": "application/grpc"}, ""},
	{"GET", "/", map[string]string{"Content-Type": "application/grpc"}, ""},
	{"HEAD", "/?connect=v1&encoding=json&message=", nil, ""},
	{"OPTIONS", "/?connect=v1&encoding=json&message=", map[string]string{connectVersion: "1"}, ""},
	{"OPTIONS", "/", map[string]string{"Content-Type": "application/grpc-web"}, ""},
}

// request returns the request of a call over HTTP/1 or HTTP/2.
func (c call) request(major int) *http.Request {
	r := httptest.NewRequest(c.method, c.url, strings.NewReader(""))
	r.ProtoMajor = major
	for name, value := range c.header {
		r.Header.Set(name, value)
	}
	return r
}

// answered is what a client finds in a refusal.
type answered struct {
	code     int
	message  string
	details  []proto.Message
	pushback string
}

// codesOfConnect are those that refusals have.
var codesOfConnect = map[string]int{"canceled": 1, "permission_denied": 7, "resource_exhausted": 8,
	"internal": 13, "unavailable": 14, "unauthenticated": 16}

// readRefusal reads an answer as a client of the protocol does.
func readRefusal(t *testing.T, protocol string, w *httptest.ResponseRecorder) (a answered) {
	t.Helper()
	h, body := w.Header(), w.Body.Bytes()
	switch protocol {
	case "grpc":
		assert.Empty(t, body)
		assert.False(t, w.Flushed)
		assert.NotContains(t, h, "Trailer")
		return readStatus(t, h)
	case "grpc-web", "grpc-web-text":
		if protocol == "grpc-web-text" {
			var err error
			body, err = base64.StdEncoding.DecodeString(string(body))
			require.NoError(t, err)
		}
		require.Equal(t, byte(0x80), body[0])
		require.Len(t, body[5:], int(binary.BigEndian.Uint32(body[1:])))
		trailer := http.Header{}
		for line := range strings.SplitSeq(strings.TrimSuffix(string(body[5:]), "\r\n"), "\r\n") {
			name, value, _ := strings.Cut(line, ": ")
			assert.Equal(t, strings.ToLower(name), name)
			trailer.Add(name, value)
		}
		for name := range h {
			assert.False(t, strings.HasPrefix(name, "Grpc-"), name)
		}
		return readStatus(t, trailer)
	case "stream":
		require.Equal(t, byte(2), body[0])
		require.Len(t, body[5:], int(binary.BigEndian.Uint32(body[1:])))
		var end struct {
			Error    json.RawMessage
			Metadata any
		}
		require.NoError(t, json.Unmarshal(body[5:], &end))
		assert.Nil(t, end.Metadata)
		body = end.Error
	}
	var read struct {
		Code, Message string
		Details       []struct{ Type, Value string }
	}
	require.NoError(t, json.Unmarshal(body, &read), "%s", body)
	a = answered{code: codesOfConnect[read.Code], message: read.Message}
	for _, detail := range read.Details {
		value, err := base64.RawStdEncoding.DecodeString(detail.Value)
		require.NoError(t, err)
		message := messages[detail.Type]()
		require.NoError(t, proto.Unmarshal(value, message))
		a.details = append(a.details, message)
	}
	return a
}

var messages = map[string]func() proto.Message{
	"google.rpc.RetryInfo":    func() proto.Message { return new(errdetails.RetryInfo) },
	"google.rpc.QuotaFailure": func() proto.Message { return new(errdetails.QuotaFailure) },
	"google.rpc.ErrorInfo":    func() proto.Message { return new(errdetails.ErrorInfo) },
}

// readStatus reads the status of gRPC.
func readStatus(t *testing.T, h http.Header) (a answered) {
	t.Helper()
	code, err := strconv.Atoi(h.Get("Grpc-Status"))
	require.NoError(t, err)
	a = answered{code: code, message: h.Get("Grpc-Message"), pushback: h.Get("Grpc-Retry-Pushback-Ms")}
	bin, err := base64.RawStdEncoding.DecodeString(h.Get("Grpc-Status-Details-Bin"))
	require.NoError(t, err)
	var s spb.Status
	require.NoError(t, proto.Unmarshal(bin, &s))
	assert.EqualValues(t, code, s.GetCode())
	assert.Equal(t, a.message, s.GetMessage())
	for _, detail := range s.GetDetails() {
		m, err := detail.UnmarshalNew()
		require.NoError(t, err)
		a.details = append(a.details, m)
	}
	return a
}

// httpStatus is the status of a refusal in a protocol, which is want for those that show it.
func httpStatus(protocol string, want int) int {
	if protocol == "" || protocol == "connect" {
		return want
	}
	return http.StatusOK
}

// contentType is that of an answer.
func contentType(c call) string {
	switch c.protocol {
	case "":
		return "application/problem+json"
	case "connect":
		return "application/json"
	}
	base, _, _ := strings.Cut(c.header["Content-Type"], ";")
	return strings.TrimSpace(base)
}

func TestRPC_EveryClientIsRefusedInItsProtocol(t *testing.T) {
	for _, c := range calls {
		for _, major := range []int{1, 2} {
			t.Run(c.method+"/"+c.url+"/"+c.header["Content-Type"]+"/"+strconv.Itoa(major), func(t *testing.T) {
				f := newFixture(t, limiter.Budget{Name: "own", Scope: limiter.ByPrincipal,
					Limit: limiter.Limit{Tokens: 1, Per: 2500*time.Millisecond + 1}})
				h := f.middleware(t, byAddress, keying.Pattern, middleware.Config{Domain: "orders.example",
					Denied: func(w http.ResponseWriter, r *http.Request, _ limiter.Decision) {
						assert.Empty(t, c.protocol, "Denied writes HTTP")
						middleware.Deny(w, r)
					}})(http.NotFoundHandler())
				h.ServeHTTP(httptest.NewRecorder(), c.request(major))
				w := httptest.NewRecorder()
				w.Header().Set("Trailer", "X-Outer")
				w.Header().Set("Content-Encoding", "gzip")
				if c.protocol == "" {
					w.Header().Del("Trailer")
				}
				h.ServeHTTP(w, c.request(major))

				assert.Equal(t, httpStatus(c.protocol, 429), w.Code)
				assert.Equal(t, contentType(c), w.Header().Get("Content-Type"))
				assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
				assert.Empty(t, w.Header().Get("Content-Encoding"))
				if c.protocol == "grpc" {
					assert.Empty(t, w.Header().Get("Retry-After"))
					assert.Empty(t, w.Header().Get("RateLimit"))
				} else {
					assert.Equal(t, []string{"3"}, w.Header()["Retry-After"])
				}
				if c.protocol == "" {
					assert.Empty(t, w.Header().Get("Grpc-Status"))
					return
				}
				got := readRefusal(t, c.protocol, w)
				assert.Equal(t, 8, got.code)
				assert.Equal(t, "rate limit exceeded; retry in 2.501s", got.message)
				if strings.HasPrefix(c.protocol, "grpc") {
					assert.Equal(t, "2501", got.pushback)
				}
				require.Len(t, got.details, 3)
				retry, quota := got.details[0].(*errdetails.RetryInfo), got.details[1].(*errdetails.QuotaFailure)
				assert.Equal(t, 2500*time.Millisecond+1, retry.GetRetryDelay().AsDuration())
				assert.Equal(t, "own", quota.GetViolations()[0].GetQuotaId())
				info := got.details[2].(*errdetails.ErrorInfo)
				assert.Equal(t, "RATE_LIMIT_EXCEEDED orders.example own",
					info.GetReason()+" "+info.GetDomain()+" "+info.GetMetadata()["budget"])

				f.move(2500*time.Millisecond + 1)
				w = httptest.NewRecorder()
				h.ServeHTTP(w, c.request(major))
				assert.Equal(t, http.StatusNotFound, w.Code, "it has waited as it was told")
			})
		}
	}
}

// forms has one call for each protocol of RPCs.
var forms = []call{calls[0], calls[6], calls[9], calls[11], calls[14], calls[17]}

func TestRPC_EachRefusalHasItsCode(t *testing.T) {
	second := limiter.Budget{Name: "own", Scope: limiter.ByPrincipal, Limit: limiter.PerSecond(1)}
	cost := func(n int64) middleware.Config {
		return middleware.Config{Cost: func(*http.Request) int64 { return n }}
	}
	for _, tt := range []struct {
		name     string
		who      keying.Who
		cfg      middleware.Config
		code     int
		status   int
		reason   string
		pushback string
		after    string
	}{
		{"deny", byAddress, cost(1), 8, 429, "RATE_LIMIT_EXCEEDED", "1000", "1"},
		{"never", byAddress, cost(2), 8, 429, "COST_ABOVE_LIMIT", "-1", ""},
		{"nobody", byUser, cost(1), 16, 401, "PRINCIPAL_REQUIRED", "", ""},
		{"no-address", byAddress, cost(1), 7, 403, "PRINCIPAL_REQUIRED", "", ""},
		{"mistake", byAddress, cost(-1), 13, 500, "RATE_LIMITER_ERROR", "", ""},
	} {
		for _, c := range forms {
			t.Run(tt.name+"/"+c.protocol, func(t *testing.T) {
				h := newFixture(t, second).middleware(t, tt.who, keying.Pattern, tt.cfg)(http.NotFoundHandler())
				h.ServeHTTP(httptest.NewRecorder(), c.request(2))
				w, r := httptest.NewRecorder(), c.request(2)
				if tt.name == "no-address" {
					r.RemoteAddr = "@"
				}
				h.ServeHTTP(w, r)
				assert.Equal(t, httpStatus(c.protocol, tt.status), w.Code)
				assert.Equal(t, w.Code == 401, w.Header().Get("Www-Authenticate") != "")
				got := readRefusal(t, c.protocol, w)
				assert.Equal(t, tt.code, got.code)
				info := got.details[len(got.details)-1].(*errdetails.ErrorInfo)
				assert.Equal(t, tt.reason, info.GetReason())
				if strings.HasPrefix(c.protocol, "grpc") {
					assert.Equal(t, tt.pushback, got.pushback)
				}
				if c.protocol != "grpc" {
					assert.Equal(t, tt.after, w.Header().Get("Retry-After"))
				}
			})
		}
	}
}

// All that a refusal states comes from one draw, which leaves room for the retry.
func TestRPC_JitterIsDrawnOnce(t *testing.T) {
	for _, c := range forms {
		t.Run(c.protocol, func(t *testing.T) {
			f := newFixture(t, limiter.Budget{Name: "own", Limit: limiter.PerSecond(1)})
			h := f.middleware(t, byAddress, keying.Pattern,
				middleware.Config{Jitter: time.Hour})(http.NotFoundHandler())
			h.ServeHTTP(httptest.NewRecorder(), c.request(2))
			waits := map[time.Duration]bool{}
			for range 50 {
				w := httptest.NewRecorder()
				r := c.request(2)
				r.Header.Set("Grpc-Timeout", "20S")
				h.ServeHTTP(w, r)
				got := readRefusal(t, c.protocol, w)
				wait := got.details[0].(*errdetails.RetryInfo).GetRetryDelay().AsDuration()
				waits[wait] = true
				if strings.HasPrefix(c.protocol, "grpc") {
					assert.Less(t, wait, 20*time.Second, "the caller can still retry")
					ms, err := strconv.Atoi(got.pushback)
					require.NoError(t, err)
					assert.Equal(t, wait.Milliseconds()+1, int64(ms))
				}
				if c.protocol != "grpc" {
					seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
					require.NoError(t, err)
					assert.Equal(t, int(wait/time.Second)+1, seconds)
				}
			}
			assert.Greater(t, len(waits), 40)
		})
	}
}

// A handler that charges by itself refuses as the middleware does.
func TestRefuse_IsTheAnswerOfTheMiddleware(t *testing.T) {
	own := limiter.Budget{Name: "own", Limit: limiter.PerSecond(1)}
	for _, c := range append(forms, call{"GET", "/", nil, ""}) {
		t.Run(c.protocol, func(t *testing.T) {
			f := newFixture(t, own)
			m := limiter.Must(middleware.New(f.limiter, byAddress, keying.Pattern, middleware.Config{}))
			byMiddleware := m.Handler(http.NotFoundHandler())
			byHandler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				d, err := f.limiter.Take(r.Context(), limiter.Caller{}, 1)
				m.Refuse(w, r, d, err)
			})
			byMiddleware.ServeHTTP(httptest.NewRecorder(), c.request(2))
			var got [2]string
			for i, h := range []http.Handler{byMiddleware, byHandler} {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, c.request(2))
				got[i] = golden(w.Result(), w.Body.String())
			}
			assert.Equal(t, got[0], got[1])
		})
	}
}

func TestAnswer_IsForFormsOfTheHandlersOwn(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "own", Limit: limiter.PerMinute(1)})
	m := limiter.Must(middleware.New(f.limiter, byUser, keying.Pattern, middleware.Config{}))
	const problem = `"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Quota Exceeded","status":429,"violated-policies":[]`
	_, err := f.limiter.Take(t.Context(), limiter.Caller{}, 1)
	require.NoError(t, err)
	for _, tt := range []struct {
		cost int64
		want middleware.Answer
	}{
		{1, middleware.Answer{Status: 429, RetryAfter: time.Minute, Problem: []byte("{" + problem + "}\n")}},
		{2, middleware.Answer{Status: 429, Problem: []byte("{" + problem +
			`,"detail":"The request costs more than the limit ever allows."}` + "\n")}},
		{-1, middleware.Answer{Status: 500,
			Problem: []byte(`{"title":"Internal Server Error","status":500}` + "\n")}},
	} {
		d, err := f.limiter.Take(t.Context(), limiter.Caller{}, tt.cost)
		assert.Equal(t, tt.want, m.Answer(d, err))
	}
	assert.Equal(t, 401, m.Answer(limiter.Decision{}, limiter.ErrNobody).Status)
	assert.Equal(t, 500, m.Answer(limiter.Decision{Outcome: limiter.Allow}, nil).Status)
}

// The handler can do less for a caller that has little left.
func TestDecisionFrom_IsWhatHasAllowedTheRequest(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "own", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(5)})
	var got limiter.Decision
	var ok bool
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got, ok = limiter.DecisionFrom(r.Context())
	})
	limit := f.middleware(t, byAddress, keying.Pattern, middleware.Config{Caller: true})
	for left := int64(4); left >= 0; left-- {
		limit(limit(handler)).ServeHTTP(httptest.NewRecorder(), query("", "").request(1))
		require.True(t, ok)
		assert.Equal(t, limiter.Allow, got.Outcome)
		assert.Equal(t, "own", got.Budget)
		assert.Equal(t, left, got.Remaining)
	}
	_, ok = limiter.DecisionFrom(t.Context())
	assert.False(t, ok)
}

// Whoever is refused cannot make that costly by a long query.
func TestRPC_ALongQueryIsNotParsed(t *testing.T) {
	f := newFixture(t, limiter.Budget{Name: "own", Limit: limiter.PerHour(1)})
	h := f.middleware(t, byAddress, keying.Pattern, middleware.Config{})(http.NotFoundHandler())
	cost := func(q string) float64 {
		r := query("", q).request(1)
		return testing.AllocsPerRun(10, func() { h.ServeHTTP(httptest.NewRecorder(), r) })
	}
	cost("")
	// To parse it would take hundreds. The race detector drops some of what is pooled.
	assert.Less(t, cost("connect=v1&"+strings.Repeat("a&", 4900)), cost("")+10)
}
