package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// maxCodes bounds the series of misuse; adapters of others may log codes of their own.
const maxCodes = 200

// misuses counts the log lines about misuse, by their code.
type misuses struct {
	vec *prometheus.CounterVec

	mu    sync.Mutex // guards known
	known map[string]bool
}

func newMisuses() *misuses {
	return &misuses{
		vec: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ration_misuse_total",
			Help: "Warnings about misuse, by their code, which the package comments explain.",
		}, []string{"code"}),
		known: map[string]bool{},
	}
}

// warned counts one line. A code beyond maxCodes counts as other.
func (m *misuses) warned(_, code string) {
	code = safe(code)
	m.mu.Lock()
	if !m.known[code] && len(m.known) >= maxCodes {
		code = other
	}
	m.known[code] = true
	m.mu.Unlock()
	m.vec.WithLabelValues(code).Inc()
}
