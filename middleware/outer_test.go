package middleware_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/middleware"
)

// copies are the mounts that give handlers a copy of the request.
var copies = map[string]struct {
	cfg    middleware.Config
	mounts int
}{
	"not-copied":    {middleware.Config{}, 1},
	"mounted-twice": {middleware.Config{}, 2},
	"caller":        {middleware.Config{Caller: true}, 1},
	"settles":       {middleware.Config{Settles: true, Caller: true}, 2},
	"by-status":     {middleware.Config{Settles: true, ByStatus: onlyFailures}, 1},
}

// Handlers further out see the request as if the inner ones had got it itself.
func TestMiddleware_TheOutsideSeesWhatTheMuxNoted(t *testing.T) {
	for name, tt := range copies {
		for _, ends := range []string{"returns", "panics", "aborts"} {
			t.Run(name+"/"+ends, func(t *testing.T) {
				f := newFixture(t, perHour(9))
				mux := http.NewServeMux()
				mux.HandleFunc("GET /orders/{id}", func(_ http.ResponseWriter, r *http.Request) {
					switch ends {
					case "panics":
						panic("mistake")
					case "aborts":
						panic(http.ErrAbortHandler)
					}
				})
				h := http.Handler(mux)
				for range tt.mounts {
					h = f.middleware(t, byUser, keying.Mux(mux), tt.cfg)(h)
				}
				r := get("/orders/7", "alice")()
				var outer *http.Request
				outside := authenticate(recoverer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					ctx := r.Context()
					defer func() {
						outer = r
						assert.Equal(t, ctx, r.Context(), "the context stays")
					}()
					h.ServeHTTP(w, r)
				})))
				outside.ServeHTTP(httptest.NewRecorder(), r)
				assert.Equal(t, "GET /orders/{id}", outer.Pattern)
				assert.Equal(t, "7", outer.PathValue("id"))
				assert.EqualValues(t, 8, balances(t, f, "alice")["all"])
			})
		}
	}
}

// A server removes the files of the form of the request that it knows.
func TestMiddleware_FilesOfAFormAreRemoved(t *testing.T) {
	for name, tt := range copies {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !assert.NoError(t, r.ParseMultipartForm(1)) {
					return
				}
				files, err := os.ReadDir(os.TempDir())
				assert.NoError(t, err)
				assert.Len(t, files, 1)
				w.WriteHeader(http.StatusNoContent)
			}))
			f := newFixture(t, perHour(9))
			for range tt.mounts {
				h = f.middleware(t, byAddress, keying.Pattern, tt.cfg)(h)
			}
			server := serve(t, h)
			var body bytes.Buffer
			form := multipart.NewWriter(&body)
			part, err := form.CreateFormFile("file", "name")
			require.NoError(t, err)
			_, err = part.Write(make([]byte, 11<<20)) // more than is kept in memory
			require.NoError(t, err)
			require.NoError(t, form.Close())
			resp, err := server.Client().Post(server.URL, form.FormDataContentType(), &body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, http.StatusNoContent, resp.StatusCode)
			server.Close() // waits until the request is finished
			files, err := os.ReadDir(os.TempDir())
			require.NoError(t, err)
			assert.Empty(t, files)
		})
	}
}
