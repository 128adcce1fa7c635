package topcallers

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/ration-go/ration/limiter"
)

// Budget is the rankings of one budget of one limiter.
type Budget struct {
	Limiter string `json:"limiter"`
	// Budget is empty for what no budget refused, but Config.Gate or a failure policy.
	Budget    string  `json:"budget"`
	Refusals  Ranking `json:"refusals"`
	NearLimit Ranking `json:"near_limit"`
	Requests  Ranking `json:"requests"`
}

// Ranking is the callers with the most requests of a kind, most first.
type Ranking struct {
	Total   int64    `json:"total"` // of all callers
	Callers []Caller `json:"callers"`
}

// Caller is one caller in a [Ranking]. Long parts of its principal are cut.
type Caller struct {
	Kind   string `json:"kind"`
	Tenant string `json:"tenant,omitempty"`
	ID     string `json:"id"`
	// Count is at least the number of requests, and at most Error above it.
	Count int64 `json:"count"`
	Error int64 `json:"error"`
	// Workloads is about how many distinct labels the caller has presented to the
	// limiter, of at most 3,000; only in the ranking by requests.
	Workloads int `json:"workloads,omitempty"`
}

// Budgets returns the rankings of all budgets, each with at most n callers: those with
// the most refusals first. Counting goes on meanwhile.
func (t *Top) Budgets(n int) []Budget {
	all := []Budget{}
	for _, v := range t.views() {
		budget := Budget{Limiter: v.limiter, Budget: v.name,
			Refusals:  v.windows[byRefusals].read(n),
			NearLimit: v.windows[byNearLimit].read(n),
			Requests:  v.windows[byRequests].read(n),
		}
		if budget.Requests.Total > 0 {
			all = append(all, budget)
		}
	}
	slices.SortFunc(all, func(a, b Budget) int {
		return cmp.Or(cmp.Compare(b.Refusals.Total, a.Refusals.Total),
			cmp.Compare(a.Limiter, b.Limiter), cmp.Compare(a.Budget, b.Budget))
	})
	return all
}

// view is the sketches of a budget at one moment.
type view struct {
	limiter, name string
	windows       [rankings]windows
}

// windows is the sketch of the window before the present one, and of that; nil is empty.
type windows [2]*sketch

// views returns the sketches, with no turn in between.
func (t *Top) views() []view {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []view
	for _, b := range *t.budgets.Load() {
		v := view{limiter: b.limiter, name: b.name}
		for i := range b.sketches {
			s := &b.sketches[i]
			v.windows[i] = windows{s.before.Load(), s.present.Load()}
		}
		all = append(all, v)
	}
	return all
}

// read returns the n callers with the most requests in both windows. A caller that only
// one of them has may have sent up to the least count to the other.
func (w windows) read(n int) Ranking {
	byHash := map[uint64]*counted{}
	var total, missing uint64 // missing: what a caller may have sent to earlier sketches
	for _, s := range w {
		if s == nil {
			continue
		}
		callers, requests, least := s.read()
		present := make(map[uint64]bool, len(callers))
		for i := range callers {
			c := &callers[i]
			present[c.hash] = true
			if known := byHash[c.hash]; known != nil {
				known.count, known.error = known.count+c.count, known.error+c.error
				known.labels.join(&c.labels)
				continue
			}
			c.count, c.error = c.count+missing, c.error+missing
			byHash[c.hash] = c
		}
		for hash, c := range byHash {
			if !present[hash] {
				c.count, c.error = c.count+least, c.error+least
			}
		}
		total, missing = total+requests, missing+least
	}
	return ranking(byHash, total, n)
}

func ranking(byHash map[uint64]*counted, total uint64, n int) Ranking {
	callers := make([]*counted, 0, len(byHash))
	for _, c := range byHash {
		callers = append(callers, c)
	}
	slices.SortFunc(callers, func(a, b *counted) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.error, b.error),
			cmp.Compare(a.hash, b.hash))
	})
	r := Ranking{Total: int64(total), Callers: []Caller{}}
	for _, c := range callers[:min(max(n, 0), len(callers))] {
		p := c.name.principal()
		r.Callers = append(r.Callers, Caller{Kind: p.Kind, Tenant: p.Tenant, ID: p.ID,
			Count: int64(c.count), Error: int64(c.error), Workloads: c.labels.estimate()})
	}
	return r
}

// ServeHTTP writes the rankings as JSON, an array of [Budget]. The parameter n is how
// many callers each ranking has at most: 10 unless stated, up to 512; budget and limiter
// choose one. It names callers and what they do, so it must not be public.
func (t *Top) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	n := 10
	if text := query.Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > cells {
			http.Error(w, "n: want 1 to 512", http.StatusBadRequest)
			return
		}
	}
	budgets := slices.DeleteFunc(t.Budgets(n), func(b Budget) bool {
		return query.Has("budget") && query.Get("budget") != b.Budget ||
			query.Has("limiter") && query.Get("limiter") != b.Limiter
	})
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(budgets) // the client may have gone
}

// cut returns a copy of a name of a limiter or a budget.
func cut(text string) string {
	n := name{}
	n.set(&limiter.Principal{Tenant: text})
	return n.principal().Tenant
}
