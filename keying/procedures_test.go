package keying_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/keying/chiroute"
)

const (
	getProcedure  = "/pkg.Orders/Get"
	listProcedure = "/pkg.Orders/List"
)

func noop(http.ResponseWriter, *http.Request) {}

// procedureRoutes are finders of one service, in the places of a limiter, by the pattern
// under which they know the service.
func procedureRoutes() map[string]struct {
	route   keying.Route
	service string
} {
	mux := http.NewServeMux()
	mux.HandleFunc("/pkg.Orders/", noop)
	mux.HandleFunc("/pkg.Other/", noop)
	mux.HandleFunc("GET /pkg.Read/{method}", noop)
	router := chi.NewRouter()
	router.Mount("/pkg.Orders/", http.HandlerFunc(noop))
	handled := chi.NewRouter()
	handled.HandleFunc("/pkg.Orders/*", noop)
	return map[string]struct {
		route   keying.Route
		service string
	}{
		"mux":        {keying.Mux(mux), "/pkg.Orders/"},
		"chi-mount":  {chiroute.New(router).Route, "/pkg.Orders/*"},
		"chi-handle": {chiroute.New(handled).Route, "/pkg.Orders/*"},
	}
}

func TestProcedures_CountIfTheirServiceServesThem(t *testing.T) {
	for name, tt := range procedureRoutes() {
		t.Run(name, func(t *testing.T) {
			route := keying.Procedures(tt.route, getProcedure, listProcedure, "/pkg.Missing/Get",
				"/pkg.Read/Get")
			for target, want := range map[string]string{
				getProcedure: getProcedure, getProcedure + "?connect=v1": getProcedure,
				"/pkg.Orders/G%65t": getProcedure, listProcedure: listProcedure,
				"/pkg.Orders/Nope": tt.service, "/pkg.Orders/": tt.service, "/pkg.Orders/get": tt.service,
				"/pkg.Orders/Get/": tt.service, "/pkg.Missing/Get": "", "/other": "",
			} {
				for _, method := range []string{"GET", "POST", "HEAD", "OPTIONS"} {
					got, ok := route(httptest.NewRequest(method, target, nil))
					assert.Equal(t, want, got, "%s %s", method, target)
					assert.Equal(t, want != "", ok, "%s %s", method, target)
				}
			}
			r := httptest.NewRequest("POST", "/", nil)
			r.URL.Path, r.URL.RawPath = getProcedure, "/pkg.Orders%2FGet"
			got, _ := route(r)
			inner, _ := tt.route(r)
			if inner != tt.service {
				assert.Equal(t, inner, got, "the path alone would be wrong")
			}
		})
	}
}

func TestProcedures_AnotherPatternCountsItself(t *testing.T) {
	tt := procedureRoutes()["mux"]
	got, ok := keying.Procedures(tt.route, "/pkg.Read/Get")(
		httptest.NewRequest("GET", "/pkg.Read/Get", nil))
	assert.True(t, ok)
	assert.Equal(t, "GET /pkg.Read/{method}", got)
}

func TestProcedures_AreRegisteredWithTheirService(t *testing.T) {
	for name, tt := range procedureRoutes() {
		t.Run(name, func(t *testing.T) {
			route := keying.Procedures(tt.route, getProcedure, listProcedure, "/pkg.Missing/Get")
			for pattern, want := range map[string]bool{
				getProcedure: true, listProcedure: true, tt.service: true, "/pkg.Orders/*": true,
				"/pkg.Missing/Get": false, "/pkg.Missing/*": false, "/pkg.Orders/Gett": false,
			} {
				registered, known, nearest := route.Registered(pattern)
				assert.True(t, known)
				assert.Equal(t, want, registered, pattern)
				if pattern == "/pkg.Orders/Gett" {
					assert.Equal(t, []string{getProcedure}, nearest)
				}
				assert.NotContains(t, nearest, "/pkg.Missing/Get", "the router does not serve it")
			}
			if listed := tt.route.List(); listed != nil {
				assert.Subset(t, route.List(), append(listed, getProcedure, listProcedure))
				assert.NotContains(t, route.List(), "/pkg.Missing/Get")
			} else {
				assert.Nil(t, route.List())
			}
		})
	}
	route := keying.Procedures(keying.Pattern, getProcedure)
	registered, known, _ := route.Registered(getProcedure)
	assert.True(t, registered && known)
	registered, _, _ = route.Registered("/pkg.Orders/Nope")
	assert.True(t, registered, "Pattern knows no routes, and accepts all")
}

func TestProcedures_PanicsForWhatIsNoProcedure(t *testing.T) {
	assert.Panics(t, func() { keying.Procedures(nil, getProcedure) })
	for _, name := range []string{"", "pkg.Orders/Get", "/pkg.Orders/", "/pkg.Orders/*", "POST /pkg.Orders/Get"} {
		assert.Panics(t, func() { keying.Procedures(keying.Pattern, name) }, name)
	}
}

func TestProcedures_DoNotAllocate(t *testing.T) {
	route := keying.Procedures(keying.Pattern, getProcedure)
	r := httptest.NewRequest("POST", getProcedure, nil)
	r.Pattern = "/pkg.Orders/"
	assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = route(r) }))
}

func BenchmarkProcedures(b *testing.B) {
	route := keying.Procedures(keying.Pattern, getProcedure, listProcedure)
	r := httptest.NewRequest("POST", getProcedure, nil)
	r.Pattern = "/pkg.Orders/"
	b.ReportAllocs()
	for b.Loop() {
		_, _ = route(r)
	}
}
