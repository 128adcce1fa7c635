package topcallers_test

import (
	"context"
	"fmt"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
	"github.com/ration-go/ration/limiter/topcallers"
)

func ExampleTop_Budgets() {
	top := limiter.Must(topcallers.New(topcallers.Config{}))
	l := limiter.Must(limiter.New(limiter.Must(memstore.New(memstore.Config{})), []limiter.Budget{
		{Name: "user", Scope: limiter.ByPrincipal, Limit: limiter.PerHour(3)},
	}, limiter.Config{Observer: top.Observer()}))
	for id, requests := range map[string]int{"alice": 2, "bob": 10, "carol": 5} {
		caller := limiter.Caller{Principal: limiter.Principal{Kind: "user", ID: id}}
		for range requests {
			limiter.Must(l.Take(context.Background(), caller, 1))
		}
	}

	user := top.Budgets(10)[0]
	for _, c := range user.Refusals.Callers {
		fmt.Println(c.ID, "was refused", c.Count, "times")
	}
	fmt.Println("requests:", user.Requests.Total)
	// Output:
	// bob was refused 7 times
	// carol was refused 2 times
	// requests: 17
}
