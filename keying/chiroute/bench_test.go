package chiroute_test

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/ration-go/ration/keying/chiroute"
)

// BenchmarkRoute is what finding the route costs at each place. The router's own
// look-up, which serving a request needs anyway, is shown beside it.
func BenchmarkRoute(b *testing.B) {
	for _, p := range placements {
		b.Run("place="+p.name, func(b *testing.B) {
			router := chi.NewRouter()
			routes := chiroute.New(router)
			handler := p.build(router, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					b.ReportAllocs()
					for b.Loop() {
						routes.Route(r)
					}
				})
			})
			serve(handler, "GET", p.prefix+"/orders/7")
		})
	}
	b.Run("place=chi-find", func(b *testing.B) {
		router := chi.NewRouter()
		router.Route("/api", func(r chi.Router) { r.Route("/v2", orders) })
		ctx := chi.NewRouteContext()
		b.ReportAllocs()
		for b.Loop() {
			ctx.Reset()
			router.Find(ctx, "GET", "/api/v2/orders/7")
		}
	})
}
