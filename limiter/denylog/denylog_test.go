package denylog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/denylog"
)

var (
	secret = []byte("0123456789abcdef")
	alice  = limiter.Caller{
		Principal: limiter.Principal{Kind: "user", Tenant: "acme", ID: "alice"},
		Route:     "GET /orders/{id}", Workload: "nightly",
	}
	denial = limiter.DecisionEvent{
		Limiter: "api", Caller: alice, Cost: 3,
		Decision: limiter.Decision{Outcome: limiter.Deny, Budget: "orders",
			Limit: limiter.PerMinute(10), RetryAfter: 1500 * time.Millisecond},
	}
)

// buffer is a log that goroutines may share.
type buffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// lines returns what was logged since the last call.
func (b *buffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := strings.Split(strings.TrimSuffix(b.text.String(), "\n"), "\n")
	b.text.Reset()
	if lines[0] == "" {
		return nil
	}
	return lines
}

var stamp = regexp.MustCompile(`^time=\S+ `)

// newLog returns a denial log and what it has written.
func newLog(t testing.TB, cfg denylog.Config) (limiter.Observer, *buffer) {
	t.Helper()
	b := new(buffer)
	cfg.Logger = slog.New(slog.NewTextHandler(b, nil))
	o, err := denylog.New(cfg)
	require.NoError(t, err)
	return o, b
}

func TestDenyLog_SaysWhatRefusedAndNamesNobodyByDefault(t *testing.T) {
	tests := []struct {
		name   string
		cfg    denylog.Config
		change func(e *limiter.DecisionEvent)
		want   []string
	}{
		{"deny", denylog.Config{}, nil, []string{`level=INFO msg="request refused" limiter=api ` +
			`budget=orders outcome=deny limit=10/1m route="GET /orders/{id}" cost=3 retry_after=1.5s`}},
		{"hashed", denylog.Config{Principals: denylog.Hashed, Secret: secret}, nil, []string{
			`level=INFO msg="request refused" limiter=api budget=orders outcome=deny limit=10/1m ` +
				`route="GET /orders/{id}" cost=3 retry_after=1.5s principal.kind=user principal.tenant=` +
				denylog.Hash(secret, limiter.Principal{Tenant: "acme"}) + ` principal.id=` +
				denylog.Hash(secret, alice.Principal) + ` workload=f1090751b47f7436`}},
		{"plain", denylog.Config{Principals: denylog.Plain, Level: slog.LevelError}, nil, []string{
			`level=ERROR msg="request refused" limiter=api budget=orders outcome=deny limit=10/1m ` +
				`route="GET /orders/{id}" cost=3 retry_after=1.5s principal.kind=user ` +
				`principal.tenant=acme principal.id=alice workload=nightly`}},
		{"nobody", denylog.Config{Principals: denylog.Plain}, func(e *limiter.DecisionEvent) {
			e.Caller = limiter.Caller{Route: "unmatched"}
		}, []string{`level=INFO msg="request refused" limiter=api budget=orders outcome=deny ` +
			`limit=10/1m route=unmatched cost=3 retry_after=1.5s`}},
		{"gate", denylog.Config{}, func(e *limiter.DecisionEvent) {
			e.Decision = limiter.Decision{Outcome: limiter.Never, Limit: limiter.Blocked}
		}, []string{`level=INFO msg="request refused" limiter=api outcome=never limit=blocked ` +
			`route="GET /orders/{id}" cost=3`}},
		{"store-failed", denylog.Config{}, func(e *limiter.DecisionEvent) {
			e.Decision = limiter.Decision{Outcome: limiter.Deny, RetryAfter: time.Second}
			e.Err = &limiter.StoreError{Reason: "timeout", Err: errors.New("x"), Policy: limiter.Closed}
		}, []string{`level=INFO msg="request refused" limiter=api outcome=deny ` +
			`route="GET /orders/{id}" cost=3 retry_after=1s store_error=timeout`}},
		{"allowed", denylog.Config{Shadow: true}, func(e *limiter.DecisionEvent) {
			e.Decision.Outcome = limiter.Allow
		}, nil},
		{"shadow-by-choice", denylog.Config{Shadow: true}, inShadow, []string{
			`level=INFO msg="request refused" limiter=api budget=trial outcome=deny limit=5/1m ` +
				`route="GET /orders/{id}" cost=2 retry_after=3s shadow=true`}},
		{"shadow", denylog.Config{}, inShadow, nil},
		{"below-the-level", denylog.Config{Level: slog.LevelDebug}, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, b := newLog(t, tt.cfg)
			e := denial
			if tt.change != nil {
				tt.change(&e)
			}
			o.Decided(t.Context(), e)
			lines := b.lines()
			for i := range lines {
				lines[i] = stamp.ReplaceAllString(lines[i], "")
			}
			assert.Equal(t, tt.want, lines)
		})
	}
}

// inShadow makes the event one of an allowed request that a shadow budget would refuse.
func inShadow(e *limiter.DecisionEvent) {
	e.Decision.Outcome = limiter.Allow
	e.Charges = []limiter.Charge{
		{Key: limiter.Key{Budget: "orders"}, Limit: limiter.PerMinute(10), Cost: 3,
			Result: limiter.Result{Outcome: limiter.Allow}},
		{Key: limiter.Key{Budget: "trial"}, Limit: limiter.PerMinute(5), Cost: 2, Shadow: true,
			Result: limiter.Result{Outcome: limiter.Deny, RetryAfter: 3 * time.Second}},
	}
}

func TestNew_NamesTheFieldThatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  denylog.Config
		want string
	}{
		{"logger", denylog.Config{Logger: new(slog.Logger)},
			"denylog: Config.Logger: want a logger made by slog.New, or nil"},
		{"negative", denylog.Config{PerSecond: -1},
			"denylog: Config.PerSecond = -1: want 1 to 10000, or 0 for 10"},
		{"many", denylog.Config{PerSecond: 10_001},
			"denylog: Config.PerSecond = 10001: want 1 to 10000, or 0 for 10"},
		{"principals", denylog.Config{Principals: 3},
			"denylog: Config.Principals = 3: want LeaveOut, Hashed or Plain"},
		{"no-secret", denylog.Config{Principals: denylog.Hashed, Secret: secret[:15]},
			"denylog: Config.Secret: want at least 16 random bytes, since Principals is Hashed"},
		{"useless-secret", denylog.Config{Secret: secret},
			"denylog: Config.Secret: want none, since Principals is not Hashed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := denylog.New(tt.cfg)
			var config *limiter.ConfigError
			require.ErrorAs(t, err, &config)
			assert.EqualError(t, err, tt.want)
		})
	}
}

// In any second, wherever it begins, there are at most as many lines as configured; and
// the lines and what they leave out add up to the denials.
func TestDenyLog_WritesAtMostSoManyLinesASecondAndTellsTheRest(t *testing.T) {
	for _, n := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex // timers and requests are other goroutines
			var times []time.Time
			told := int64(0)
			handler := handlerFunc(func(r slog.Record) {
				mu.Lock()
				defer mu.Unlock()
				times = append(times, r.Time)
				if r.Message == "request refused" {
					told++
				}
				r.Attrs(func(a slog.Attr) bool {
					if a.Key == "left_out" {
						told += a.Value.Int64()
					}
					return true
				})
			})
			o, err := denylog.New(denylog.Config{Logger: slog.New(handler), PerSecond: n})
			require.NoError(t, err)
			const denials = 3000
			for i := range denials {
				o.Decided(t.Context(), denial)
				time.Sleep(time.Duration(i*i%7) * time.Millisecond)
				if i%1000 == 500 {
					time.Sleep(3 * time.Second)
					synctest.Wait()
				}
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			assert.EqualValues(t, denials, told)
			assert.Greater(t, len(times), 5*n)
			for i := n; i < len(times); i++ {
				assert.GreaterOrEqual(t, times[i].Sub(times[i-n]), time.Second)
			}
		})
	}
}

// handlerFunc is a slog.Handler.
type handlerFunc func(slog.Record)

func (handlerFunc) Enabled(context.Context, slog.Level) bool        { return true }
func (f handlerFunc) Handle(_ context.Context, r slog.Record) error { f(r); return nil }
func (f handlerFunc) WithAttrs([]slog.Attr) slog.Handler            { return f }
func (f handlerFunc) WithGroup(string) slog.Handler                 { return f }

// A handler that panics does so in the request, where servers recover; in the goroutine of
// a timer it would end the process. The next line then tells what was left out.
func TestDenyLog_AHandlerThatPanicsDoesNotEndTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics atomic.Bool // timers are other goroutines
		leftOut := int64(0)
		handler := handlerFunc(func(r slog.Record) {
			if panics.Load() {
				panic("handler")
			}
			r.Attrs(func(a slog.Attr) bool {
				if a.Key == "left_out" {
					leftOut += a.Value.Int64()
				}
				return true
			})
		})
		o, err := denylog.New(denylog.Config{Logger: slog.New(handler), PerSecond: 1})
		require.NoError(t, err)
		for range 3 {
			o.Decided(t.Context(), denial)
		}
		panics.Store(true)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		panics.Store(false)
		o.Decided(t.Context(), denial)
		assert.EqualValues(t, 2, leftOut)
	})
}

// A caller chooses these texts: they forge no line, break no JSON, and stay short.
func TestDenyLog_EscapesAndCutsWhatCallersChoose(t *testing.T) {
	hostile := []string{"x\nlevel=INFO msg=forged", "\xff\xfe\x00", `"},{"level":"ERROR"`,
		"\u2028\x1b[31m", strings.Repeat("é", 1<<19), strings.Repeat("\xff", 1<<20)}
	for _, text := range hostile {
		e := denial
		e.Caller = limiter.Caller{Principal: limiter.Principal{Kind: text, Tenant: text, ID: text},
			Route: text, Workload: text}
		e.Limiter, e.Decision.Budget = text, text

		o, b := newLog(t, denylog.Config{Principals: denylog.Plain})
		o.Decided(t.Context(), e)
		lines := b.lines()
		require.Len(t, lines, 1)
		assert.Less(t, len(lines[0]), 8<<10)
		assert.True(t, utf8.ValidString(lines[0]))

		var out bytes.Buffer
		o, err := denylog.New(denylog.Config{Logger: slog.New(slog.NewJSONHandler(&out, nil)),
			Principals: denylog.Plain})
		require.NoError(t, err)
		o.Decided(t.Context(), e)
		var line struct {
			Msg       string
			Principal struct{ ID string }
		}
		require.NoError(t, json.Unmarshal(out.Bytes(), &line))
		assert.Equal(t, "request refused", line.Msg)
		assert.LessOrEqual(t, len(line.Principal.ID), 256*3+len("…"))
	}
}

// Parts of a principal that are divided otherwise are another principal.
func TestHash_TellsPrincipalsApart(t *testing.T) {
	seen := map[string]limiter.Principal{}
	for _, p := range []limiter.Principal{
		{Kind: "a", Tenant: "b", ID: "c"}, {Kind: "ab", Tenant: "", ID: "c"},
		{Kind: "a", Tenant: "", ID: "bc"}, {Kind: "a", Tenant: "bc", ID: ""}, {Tenant: "abc"},
		{}, {Kind: "\x00"}, {Tenant: "\x00"}, {ID: "\x00"},
	} {
		h := denylog.Hash(secret, p)
		assert.Len(t, h, 16)
		assert.NotContains(t, seen, h)
		seen[h] = p
	}
	assert.NotEqual(t, denylog.Hash(secret, alice.Principal),
		denylog.Hash([]byte("another-secret-of-16"), alice.Principal))
}

func TestDenyLog_KeepsCountUnderConcurrency(t *testing.T) {
	o, b := newLog(t, denylog.Config{PerSecond: 10_000})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				o.Decided(context.Background(), denial)
			}
		})
	}
	wg.Wait()
	assert.Len(t, b.lines(), 4000)
}

func TestDenyLog_ADenialThatIsLeftOutDoesNotAllocate(t *testing.T) {
	o, _ := newLog(t, denylog.Config{PerSecond: 1, Principals: denylog.Plain})
	o.Decided(t.Context(), denial)
	o.Decided(t.Context(), denial) // starts the timer
	ctx := t.Context()
	assert.Less(t, testing.AllocsPerRun(1000, func() { o.Decided(ctx, denial) }), 0.1)
}

func BenchmarkLeftOut(b *testing.B) {
	o, _ := newLog(b, denylog.Config{PerSecond: 1})
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			o.Decided(ctx, denial)
		}
	})
}
