package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

// limitedServer serves one protocol with a limit of two a minute.
func limitedServer(t *testing.T, http2 bool) *httptest.Server {
	t.Helper()
	f := newFixture(t, limiter.Budget{Name: "own", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(2)})
	server := httptest.NewUnstartedServer(f.middleware(t, byAddress, keying.Pattern,
		middleware.Config{})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
	})))
	server.EnableHTTP2 = http2
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// protocols are those that a client may speak, by the options of curl.
var protocols = map[string]struct {
	option, status string
	http2          bool
}{
	"HTTP/1.1": {"--http1.1", "HTTP/1.1 429 Too Many Requests", false},
	"HTTP/2.0": {"--http2", "HTTP/2 429 ", true},
}

func TestWire_CurlSeesTheAnswer(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is not installed")
	}
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			server := limitedServer(t, protocol.http2)
			var out []byte
			for range 3 {
				out, err = exec.Command(curl, "--silent", "--show-error", "--include", "--insecure",
					"--noproxy", "*", protocol.option, server.URL).Output()
				require.NoError(t, err)
			}
			head, body, _ := strings.Cut(string(out), "\r\n\r\n")
			lines := strings.Split(head, "\r\n")
			assert.Equal(t, protocol.status, lines[0])
			head = strings.ToLower(head)
			for _, line := range []string{"cache-control: no-store", "retry-after: 30",
				"content-type: application/problem+json", `ratelimit: "own";r=0;t=30`,
				`ratelimit-policy: "own";q=2;w=60`} {
				assert.Equal(t, 1, strings.Count(head+"\r\n", "\r\n"+line+"\r\n"), line)
			}
			assert.Equal(t, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",`+
				`"title":"Quota Exceeded","status":429,"violated-policies":["own"]}`+"\n", body)

			out, err = exec.Command(curl, "--silent", "--head", "--insecure", "--noproxy", "*",
				protocol.option, server.URL).Output()
			require.NoError(t, err)
			assert.True(t, strings.HasPrefix(string(out), protocol.status))
		})
	}
}

func TestWire_AGoClientSeesTheAnswer(t *testing.T) {
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			server := limitedServer(t, protocol.http2)
			for i, want := range []fields{
				{"own", "own", 2, 60, 1, 30, -1}, {"own", "own", 2, 60, 0, 30, -1},
				{"own", "own", 2, 60, 0, 30, 30},
			} {
				for _, method := range []string{"GET", "HEAD"}[:1+i/2] { // HEAD once it is refused
					resp, body := exchange(t, server, method, "/", "")
					assert.Equal(t, name, resp.Proto)
					assert.Equal(t, want, read(t, resp.Header), method)
					assert.Equal(t, i == 2 && method == "GET", body != "")
				}
			}
		})
	}
}
