package metrics

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// other stands for a label that cannot be one, and for what goes beyond
	// maxLearnt.
	other = "other"
	// unmatched is the route of requests that match none.
	unmatched = "unmatched"
	// maxLearnt bounds the keys of a table that were not declared: a route
	// function that returned raw paths would else let callers fill the memory.
	maxLearnt = 1000
	// maxLabel is how many bytes a name has that is not declared; a longer one is other.
	maxLabel = 1000
)

// key is the labels of a counter, all but its outcome. The transport is empty for a
// budget; the name is that of the budget or the route.
type key struct{ limiter, transport, name string }

// lookup finds the counters of a key. To hash all of a key costs more than to compare
// it with a few: with all if there are few, and else with those that share its name.
type lookup struct {
	all    []series
	byName map[string][]series
}

type series struct {
	key      key
	counters []prometheus.Counter // by outcome
}

// few is up to how many series a search in all is faster than a map.
const few = 8

func (l *lookup) find(k *key) []prometheus.Counter {
	among := l.all
	if len(among) > few {
		among = l.byName[k.name]
	}
	for i := range among {
		if among[i].key == *k {
			return among[i].counters
		}
	}
	return nil
}

// table finds the counters of a key, one for each outcome. Reading takes no lock
// and does not allocate: the map is replaced whole, which is rare, as keys are
// known after start-up.
type table struct {
	vec      *prometheus.CounterVec
	labels   func(*key) []string
	outcomes []string
	known    atomic.Pointer[lookup]

	// mu is held to replace known.
	mu sync.Mutex
}

// newRouteTable returns a table whose keys are routes.
func newRouteTable(opts prometheus.CounterOpts, outcomes []string) *table {
	return newTable(&table{
		vec:      prometheus.NewCounterVec(opts, []string{"limiter", "transport", "route", "outcome"}),
		labels:   func(k *key) []string { return []string{k.limiter, k.transport, k.name} },
		outcomes: outcomes,
	})
}

// newBudgetTable returns a table whose keys are budgets.
func newBudgetTable(opts prometheus.CounterOpts, outcomes []string) *table {
	return newTable(&table{
		vec:      prometheus.NewCounterVec(opts, []string{"limiter", "budget", "outcome"}),
		labels:   func(k *key) []string { return []string{k.limiter, k.name} },
		outcomes: outcomes,
	})
}

func newTable(t *table) *table {
	t.known.Store(&lookup{})
	return t
}

// count adds 1 to an outcome of k, or of "other" if k is one too many.
func (t *table) count(k *key, outcome int) {
	counters := t.known.Load().find(k)
	if counters == nil {
		counters = t.learn(*k)
	}
	counters[outcome].Inc()
}

// learn returns the counters of k, which becomes known, or those of "other".
func (t *table) learn(k key) []prometheus.Counter {
	rest := key{k.limiter, k.transport, other}
	if len(k.name) > maxLabel {
		k = rest
	}
	known := t.known.Load()
	full := len(known.all) >= maxLearnt || k == rest
	if counters := known.find(&rest); counters != nil && full {
		return counters // without a lock: whoever sends these sends many
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known = t.known.Load()
	if known.find(&k) == nil && len(known.all) >= maxLearnt {
		k = rest
	}
	return t.add(k).find(&k)
}

// declare makes keys known, however many.
func (t *table) declare(keys ...key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(keys...)
}

// add makes keys known and returns all that are. mu is held.
func (t *table) add(keys ...key) *lookup {
	old := t.known.Load()
	known := &lookup{all: slices.Clip(old.all), byName: map[string][]series{}}
	maps.Copy(known.byName, old.byName)
	for _, k := range keys {
		if known.find(&k) == nil {
			s := series{k, t.counters(&k)}
			known.all = append(known.all, s)
			known.byName[k.name] = append(slices.Clip(known.byName[k.name]), s)
		}
	}
	t.known.Store(known)
	return known
}

// counters makes the series of k, at 0.
func (t *table) counters(k *key) []prometheus.Counter {
	labels := t.labels(k)
	for i, label := range labels {
		labels[i] = safe(label)
	}
	counters := make([]prometheus.Counter, len(t.outcomes))
	for i, outcome := range t.outcomes {
		c, err := t.vec.GetMetricWithLabelValues(append(labels, outcome)...)
		if err != nil {
			// No label is known to come here, and a request must not fail for one
			// that does: it is counted, and shown nowhere.
			c = prometheus.NewCounter(prometheus.CounterOpts{Name: "ration_unlabelled_total"})
		}
		counters[i] = c
	}
	return counters
}

// safe returns a text that can be a label's value. Invalid UTF-8 is refused by
// the client, and an empty value would be a label that is not there.
func safe(label string) string {
	if label == "" || !utf8.ValidString(label) {
		return other
	}
	return label
}
