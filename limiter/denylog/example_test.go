package denylog_test

import (
	"context"
	"log/slog"
	"os"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/denylog"
	"github.com/ration-go/ration/limiter/memstore"
)

func ExampleNew() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "retry_after" {
				return slog.Attr{} // they differ from run to run
			}
			return a
		},
	}))
	denials := limiter.Must(denylog.New(denylog.Config{Logger: logger, Principals: denylog.Plain}))

	l := limiter.Must(limiter.New(limiter.Must(memstore.New(memstore.Config{})), []limiter.Budget{
		{Name: "user", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(1)},
	}, limiter.Config{Name: "api", Observer: denials}))
	alice := limiter.Caller{
		Principal: limiter.Principal{Kind: "user", ID: "alice"},
		Route:     "GET /orders/{id}",
	}
	for range 2 {
		limiter.Must(l.Take(context.Background(), alice, 1))
	}
	// Output:
	// level=INFO msg="request refused" limiter=api budget=user outcome=deny limit=1/1h route="GET /orders/{id}" cost=1 principal.kind=user principal.id=alice
}
