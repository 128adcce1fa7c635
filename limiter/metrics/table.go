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
)

// key is the labels of a counter, all but its outcome.
type key[K any] interface {
	comparable
	labels() []string
	label() string // the one of the labels that few keys share
	rest() K       // counts the keys beyond maxLearnt
}

type budget struct{ limiter, name string }

func (b budget) labels() []string { return []string{b.limiter, b.name} }
func (b budget) label() string    { return b.name }
func (b budget) rest() budget     { return budget{b.limiter, other} }

type route struct{ limiter, transport, pattern string }

func (r route) labels() []string { return []string{r.limiter, r.transport, r.pattern} }
func (r route) label() string    { return r.pattern }
func (r route) rest() route      { return route{r.limiter, r.transport, other} }

// lookup finds the counters of a key by its label, and then by the rest: to hash
// all of a key costs more than to compare it with the few that share a label.
type lookup[K key[K]] struct {
	series map[string][]series[K]
	size   int
}

type series[K key[K]] struct {
	key      K
	counters []prometheus.Counter // by outcome
}

func (l *lookup[K]) find(k K) []prometheus.Counter {
	for i, sharing := 0, l.series[k.label()]; i < len(sharing); i++ {
		if sharing[i].key == k {
			return sharing[i].counters
		}
	}
	return nil
}

// table finds the counters of a key, one for each outcome. Reading takes no lock
// and does not allocate: the map is replaced whole, which is rare, as keys are
// known after start-up.
type table[K key[K]] struct {
	vec      *prometheus.CounterVec
	outcomes []string
	known    atomic.Pointer[lookup[K]]

	// mu is held to replace known.
	mu sync.Mutex
}

func newTable[K key[K]](opts prometheus.CounterOpts, outcomes []string, labels ...string) *table[K] {
	t := &table[K]{vec: prometheus.NewCounterVec(opts, labels), outcomes: outcomes}
	t.known.Store(&lookup[K]{})
	return t
}

// count adds 1 to an outcome of k, or of k.rest() if k is one too many.
func (t *table[K]) count(k K, outcome int) {
	counters := t.known.Load().find(k)
	if counters == nil {
		counters = t.learn(k)
	}
	counters[outcome].Inc()
}

// learn returns the counters of k, which becomes known, or those of k.rest().
func (t *table[K]) learn(k K) []prometheus.Counter {
	known, rest := t.known.Load(), k.rest()
	if counters := known.find(rest); counters != nil && known.size >= maxLearnt {
		return counters // without a lock: whoever sends these sends many
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known = t.known.Load()
	if known.find(k) == nil && known.size >= maxLearnt {
		k = rest
	}
	return t.add(k).find(k)
}

// declare makes keys known, however many.
func (t *table[K]) declare(keys ...K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(keys...)
}

// add makes keys known and returns all that are. mu is held.
func (t *table[K]) add(keys ...K) *lookup[K] {
	old := t.known.Load()
	known := &lookup[K]{series: map[string][]series[K]{}, size: old.size}
	maps.Copy(known.series, old.series)
	for _, k := range keys {
		if known.find(k) == nil {
			sharing := slices.Clip(known.series[k.label()])
			known.series[k.label()] = append(sharing, series[K]{k, t.counters(k)})
			known.size++
		}
	}
	t.known.Store(known)
	return known
}

// counters makes the series of k, at 0.
func (t *table[K]) counters(k K) []prometheus.Counter {
	labels := k.labels()
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
