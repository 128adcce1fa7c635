package middleware_test

import (
	"context"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying/chiroute"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/middleware"
)

// page fetches from another origin until it is refused, waits as it is told, and
// fetches once more. What it saw it writes into itself.
const page = `<!doctype html><title>limited</title><pre id="seen"></pre><script type="module">
const api = new URLSearchParams(location.search).get("api"), seen = [];
async function ask() {
	try {
		const r = await fetch(api, {headers: {"X-Test-User": "alice"}});
		const answer = {status: r.status, body: await r.text()};
		for (const name of ["RateLimit", "RateLimit-Policy", "Retry-After"]) {
			answer[name] = r.headers.get(name);
		}
		return answer;
	} catch (e) {
		return {error: e.name};
	}
}
for (let i = 0; i < 9; i++) {
	const answer = await ask();
	seen.push(answer);
	if (answer.status !== 200) break;
}
const wait = seen.at(-1)["Retry-After"];
if (wait) {
	await fetch("/wait?seconds=" + wait);
	seen.push(await ask());
}
document.getElementById("seen").textContent = JSON.stringify(seen);
</script>`

// answer is what the page saw of one.
type answer struct {
	Error, Body string
	Status      int
	RateLimit   string
	Policy      string `json:"RateLimit-Policy"`
	RetryAfter  string `json:"Retry-After"`
}

const exposed = "RateLimit, RateLimit-Policy, Retry-After"

// cors answers preflights and adds to all other answers what pages of other
// origins need.
func cors(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		h.Set("Vary", "Origin")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", "GET")
			h.Set("Access-Control-Allow-Headers", "X-Test-User")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		h.Set("Access-Control-Expose-Headers", exposed)
		next.ServeHTTP(w, r)
	})
}

// browse opens the page, which asks api, in the browser that BROWSER names.
func browse(t *testing.T, f *fixture, api string) (seen []answer) {
	t.Helper()
	browser := os.Getenv("BROWSER")
	if browser == "" {
		t.Skip("make test-browser sets BROWSER")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /wait", func(_ http.ResponseWriter, r *http.Request) {
		seconds, err := strconv.Atoi(r.FormValue("seconds"))
		assert.NoError(t, err)
		f.move(time.Duration(seconds) * time.Second)
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, page)
	})
	profile, err := os.MkdirTemp("", "browser") // t.TempDir would fail while the browser still writes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(profile) })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-quic", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--user-data-dir="+profile,
		"--virtual-time-budget=30000", "--dump-dom", serve(t, mux).URL+"/?api="+api)
	cmd.WaitDelay = 5 * time.Second
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	require.NoError(t, err, log.String())
	_, rest, _ := strings.Cut(string(out), `<pre id="seen">`)
	text, _, _ := strings.Cut(rest, "</pre>")
	require.NoError(t, json.Unmarshal([]byte(html.UnescapeString(text)), &seen), "%s\n%s", out, log.String())
	return seen
}

// shop serves "GET /orders" behind middlewares, to pages of any origin.
func shop(t *testing.T, middlewares func(limit func(http.Handler) http.Handler) chi.Middlewares) (
	f *fixture, api string,
) {
	t.Helper()
	f = newFixture(t, limiter.Budget{Name: "orders", Scope: perRoute, Limit: limiter.PerMinute(2)})
	router := chi.NewRouter()
	router.Use(middlewares(f.middleware(t, byUser, chiroute.New(router).Route, middleware.Config{}))...)
	router.Get("/orders", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "order") })
	return f, serve(t, router).URL + "/orders"
}

func TestBrowser_APageReadsItsLimitAcrossOrigins(t *testing.T) {
	f, api := shop(t, func(limit func(http.Handler) http.Handler) chi.Middlewares {
		return chi.Middlewares{cors, authenticate, limit}
	})
	const policy = `"orders";q=2;w=60`
	seen := browse(t, f, api)
	require.Len(t, seen, 4)
	for _, a := range seen {
		if a.Status == 429 {
			assert.Contains(t, a.Body, "quota-exceeded")
		}
	}
	seen[2].Body = ""
	assert.Equal(t, []answer{
		{Status: 200, Body: "order", RateLimit: `"orders";r=1;t=30`, Policy: policy},
		{Status: 200, Body: "order", RateLimit: `"orders";r=0;t=30`, Policy: policy},
		{Status: 429, RateLimit: `"orders";r=0;t=30`, Policy: policy, RetryAfter: "30"},
		{Status: 200, Body: "order", RateLimit: `"orders";r=0;t=30`, Policy: policy},
	}, seen)
	const route = "http GET /orders "
	assert.Equal(t, []string{route + "allow", route + "allow", route + "deny", route + "allow"},
		f.seen.take(), "CORS answers preflights before they are counted")
}

// This is why CORS goes in front: a preflight carries no credentials, so a limiter of
// authenticated callers refuses it, and the page sees no answer at all.
func TestBrowser_APreflightThatReachesTheLimiterIsRefused(t *testing.T) {
	f, api := shop(t, func(limit func(http.Handler) http.Handler) chi.Middlewares {
		return chi.Middlewares{authenticate, limit, cors}
	})
	assert.Equal(t, []answer{{Error: "TypeError"}}, browse(t, f, api))
	assert.Equal(t, []string{"http unmatched unauthenticated"}, f.seen.take())
}
