package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/memstore"
)

// client is one account of a service, the labels that it presents, in turn, and
// its requests a minute.
type client struct {
	name             string
	labels, requests int
}

var clients = []client{
	{"web app", 1, 90}, {"mobile app", 1, 100}, {"partner batch", 1, 340}, {"indexing bot", 40, 4000},
}

// keyed is a way to key the requests of clients.
type keyed struct {
	name    string
	budgets []limiter.Budget
	caller  func(account, label string) limiter.Caller
}

// waysToKey all have one limit: 100 a minute.
func waysToKey() ([]keyed, error) {
	account := limiter.Budget{
		Name: "account", Scope: limiter.ByPrincipal, Limit: limiter.PerMinute(100),
		OnError: limiter.Closed,
	}
	workload := account
	workload.Name, workload.Scope = "workload", limiter.ByPrincipal|limiter.ByWorkload
	folding, err := keying.Workloads{
		Header: "X-Workload", Listed: []string{"web app 0", "mobile app 0", "partner batch 0"},
	}.Folding()
	if err != nil {
		return nil, err
	}
	principal := func(id string) limiter.Principal {
		return limiter.Principal{Kind: "client", ID: id}
	}
	return []keyed{
		{"by label", []limiter.Budget{account}, func(_, label string) limiter.Caller {
			return limiter.Caller{Principal: principal(label)} // which callers choose: a mistake
		}},
		{"by account", []limiter.Budget{account}, func(account, _ string) limiter.Caller {
			return limiter.Caller{Principal: principal(account)}
		}},
		{"and workload", []limiter.Budget{account, workload},
			func(account, label string) limiter.Caller {
				return limiter.Caller{Principal: principal(account), Workload: folding.Fold(label)}
			}},
	}, nil
}

const aboutLabels = `Who names the account? Four clients send one minute's requests at one instant, with labels
that they choose; the limit is 100 a minute. For three kinds of key the table shows how
many requests were allowed, and beside them how many accounts the store then held.
"by label": each label is an account, so the bot's 40 labels get 40 times the limit.
"by account": an account for each client, whatever its labels.
"and workload": the same, and each client splits its own 100 by label; at most 16
unlisted labels have an account of their own.
The last line is the bot keyed by label for an hour, with 40 new labels a minute: the
accounts that a limiter with a lifetime of 60 minutes keeps, and those that this store
keeps, which drops an account as soon as it is full again.`

// labels: a minute's requests of four clients, all at one instant, keyed in
// three ways, and the accounts held for each. Whoever counts labels gives the
// bot as many budgets as it cares to invent.
func labels(w io.Writer, open opener) error {
	ways, err := waysToKey()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "100 a minute\tlabels\trequests\t")
	for _, way := range ways {
		fmt.Fprintf(table, "%s\theld\t", way.name)
	}
	fmt.Fprintln(table)
	allowed, held := make([][]int, len(ways)), make([][]int64, len(ways))
	for i, way := range ways {
		if allowed[i], held[i], err = way.minute(open); err != nil {
			return err
		}
	}
	for row, c := range append(clients, total(clients)) {
		fmt.Fprintf(table, "%s\t%d\t%d\t", c.name, c.labels, c.requests)
		for i := range ways {
			fmt.Fprintf(table, "%d\t%d\t", allowed[i][row], held[i][row])
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return ways[0].hour(w, open)
}

func total(clients []client) client {
	sum := client{name: "all"}
	for _, c := range clients {
		sum.labels += c.labels
		sum.requests += c.requests
	}
	return sum
}

// minute sends the requests of all clients and returns, for each and for all
// together, how many were allowed and how many accounts the store then held.
func (k *keyed) minute(open opener) (allowed []int, held []int64, err error) {
	store, l, err := k.open(open, &clock{start})
	if err != nil {
		return nil, nil, err
	}
	var all tally
	for _, c := range clients {
		before, holding := all.accepted, accounts(store)
		for i := range c.requests {
			label := fmt.Sprintf("%s %d", c.name, i%c.labels)
			if err := all.take(l, k.caller(c.name, label), 1); err != nil {
				return nil, nil, err
			}
		}
		allowed = append(allowed, all.accepted-before)
		held = append(held, accounts(store)-holding)
	}
	return append(allowed, all.accepted), append(held, accounts(store)), nil
}

// hour lets the bot bring 40 new labels a minute, and compares what the store
// holds in the end with a limiter that keeps each key for 60 minutes.
func (k *keyed) hour(w io.Writer, open opener) error {
	const lifetime = time.Hour
	c := &clock{start}
	store, l, err := k.open(open, c)
	if err != nil {
		return err
	}
	seen := map[string]time.Time{}
	for minute := range 60 {
		c.at = start.Add(time.Duration(minute) * time.Minute)
		for i := range 40 {
			label := fmt.Sprintf("indexing bot %d.%d", minute, i)
			// A hundred requests of a label, as one charge.
			if _, err := l.Take(context.Background(), k.caller("indexing bot", label), 100); err != nil {
				return err
			}
			seen[label] = c.at
		}
	}
	kept := 0
	for _, at := range seen {
		if c.at.Sub(at) < lifetime {
			kept++
		}
	}
	fmt.Fprintf(w, "an hour of 40 new labels a minute: kept for 60 minutes accounts=%d, "+
		"dropped when full accounts=%d\n", kept, accounts(store))
	return nil
}

func (k *keyed) open(open opener, c *clock) (limiter.Store, *limiter.Limiter, error) {
	store, err := open(c.now)
	if err != nil {
		return nil, nil, err
	}
	l, err := limiter.New(store, k.budgets, limiter.Config{})
	return store, l, err
}

// accounts returns how many accounts the store holds, or -1 where it cannot tell.
func accounts(s limiter.Store) int64 {
	if counting, ok := s.(interface{ Stats() memstore.Stats }); ok {
		return counting.Stats().Accounts
	}
	return -1
}
