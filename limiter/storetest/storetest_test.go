package storetest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/limiter"
	"github.com/ration-go/ration/limiter/storetest"
)

func TestRun_PassesARightStore(t *testing.T) {
	storetest.Run(t, harness(""))
}

// breach is a fault and the rules that it breaks.
type breach struct {
	fault fault
	by    []string
}

// faults are stores that break the promise in one way each, and the rules that
// say so. Other rules may fail with them: those here must.
var faults = []breach{
	{"drops the remainder", []string{"R1 exact token buckets"}},
	{"rounds the time of a token", []string{"R1 exact token buckets"}},
	{"costs are 32 bits", []string{"R1 huge values"}},
	{"checks nothing", []string{"R1 check refuses"}},
	{"refuses limits without a typed error", []string{"R1 check refuses"}},
	{"takes limits that are not valid", []string{"R1 check refuses"}},

	{"a clock that goes back drains", []string{"R2 a clock that goes back"}},
	{"a clock that goes back credits", []string{"R2 a clock that goes back"}},
	{"refused requests leave no instant", []string{"R2 the latest of all requests"}},

	{"starts empty", []string{"R3 starts full"}},
	{"hoards while idle", []string{"R3 fills to capacity"}},
	{"forgets after a minute", []string{"R3 remembers until full"}},
	{"forgets if there are many", []string{"R3 remembers many accounts"}},

	{"never at the capacity", []string{"R4 outcomes"}},
	{"denies the last token", []string{"R4 outcomes", "R4 boundary pairs"}},
	{"denies above the capacity", []string{"R4 outcomes"}},
	{"allows above the capacity when full", []string{"R4 outcomes"}},
	{"rounds waits down", []string{"R4 boundary pairs"}},
	{"rounds waits up to a millisecond", []string{"R4 boundary pairs"}},

	{"refusals are charged", []string{"R5 refused means untouched"}},
	{"refusals give back", []string{"R5 refused means untouched"}},
	{"refusals charge the others", []string{"R5 refused by one of several"}},
	{"debits one budget before it asks the next", []string{"R5 refused by one of several"}},
	{"refusals create accounts", []string{"R5 refused creates no account"}},

	{"the first charge decides", []string{"R6 who decides", "R6 several budgets"}},
	{"the shortest wait decides", []string{"R6 who decides"}},
	{"the least left decides, whatever the capacity", []string{"R6 who decides"}},
	{"judges a key that appears twice twice", []string{"R6 the same key twice"}},
	{"one key may have two limits", []string{"R6 the same key twice"}},
	{"shadow refuses", []string{"R6 shadow"}},
	{"shadow decides", []string{"R6 shadow"}},
	{"shadow is not debited", []string{"R6 shadow"}},
	{"refuses a request without charges", []string{"R6 no charges"}},

	{"denies cost 0 of an empty account", []string{"R7 cost 0"}},
	{"a negative cost credits", []string{"R7 negative costs"}},
	{"finds a negative cost late", []string{"R7 negative costs"}},

	{"peek debits", []string{"R8 peek foretells"}},
	{"peek writes a receipt", []string{"R8 peek writes no receipt"}},
	{"peek carries over", []string{"R8 peek keeps the limit"}},

	{"credits above the capacity", []string{"R9 credit up to capacity"}},
	{"debts have no floor", []string{"R9 debit down to debt"}},
	{"a debit stops at zero", []string{"R9 debit down to debt", "R9 settle corrects"}},
	{"a receipt can be used twice", []string{"R9 settle once"}},
	{"settles without a receipt", []string{"R9 settle once"}},
	{"a missing receipt has another error", []string{"R9 settle once"}},
	{"a refusal keeps the receipt", []string{"R9 settle once"}},
	{"credits more than was taken", []string{"R9 no more than was taken"}},
	{"a credit that is too large consumes the receipt", []string{"R9 no more than was taken"}},
	{"settles two charges only", []string{"R9 settle every charge"}},
	{"shadows have no receipt", []string{"R9 settle every charge"}},
	{"settles one by one", []string{"R9 settle all or none"}},
	{"corrects the window of now", []string{"R9 a window that has ended"}},
	{"forgets late debits", []string{"R9 a late debit", "R9 settle corrects"}},

	{"a new limit refills", []string{"R10 a change mints nothing"}},
	{"a change keeps what was used", []string{"R10 a change mints nothing"}},
	{"a full account keeps its old tokens", []string{"R10 full stays full"}},
	{"Burst spelled out is another limit", []string{"R10 equal limits"}},
	{"a refusal keeps the old limit", []string{"R10 a refused request carries over"}},
	{"a new capacity refills a window", []string{"R10 windows and logs carry"}},
	{"another algorithm refills", []string{"R10 another length", "R10 what is left"}},
	{"carries what was used of a bucket", []string{"R10 what is left",
		"R10 one capacity at one instant"}},
	{"forgets that a window was a bucket", []string{"R10 one capacity at one instant"}},

	{"windows begin with the first request", []string{"R11 windows of the epoch"}},
	{"waits a whole window", []string{"R11 windows of the epoch"}},
	{"windows are rounded towards zero", []string{"R11 windows before the epoch"}},
	{"a log keeps its boundary", []string{"R11 the log's boundary"}},
	{"a log forgets early", []string{"R11 the log's boundary", "R11 windows and logs at random"}},
	{"waits until the whole log is empty", []string{"R11 the oldest leave first"}},

	{"checks, then debits", []string{"R12 no lost debit"}},
	{"debits one by one", []string{"R12 several budgets at once"}},
	{"locks in the order of the charges", []string{"R12 several budgets at once"}},
	{"loses concurrent corrections", []string{"R12 settle once at once"}},
	{"reads the clock under its lock", []string{"R12 hooks hold no lock"}},
	{"writes to charges of the past", []string{"R12 charges are the caller's"}},

	{"serves callers that are gone", []string{"R14 a caller that is gone"}},
	{"hides the context's error", []string{"R14 a caller that is gone"}},
	{"checks costs only where it must pay", []string{"R14 errors first"}},

	{"joins keys with a colon", []string{"K5 one key, one account"}},
	{"ignores the case of keys", []string{"K5 one key, one account"}},
	{"cuts long keys", []string{"K5 one key, one account"}},
	{"makes keys valid UTF-8", []string{"K5 one key, one account"}},
	{"ignores the kind", []string{"K5 one key, one account"}},
	{"keys are pointers", []string{"K5 a key is its parts"}},
}

// rule returns the rule called "number name".
func rule(t *testing.T, called string) storetest.Rule {
	t.Helper()
	for _, r := range storetest.Rules() {
		if r.Number+" "+r.Name == called {
			return r
		}
	}
	require.Fail(t, "no such rule: "+called)
	return storetest.Rule{}
}

func TestRules_CatchTheStoreThatBreaksThem(t *testing.T) {
	catch(t, harness, faults)
}

func catch(t *testing.T, harness func(fault) storetest.Harness, faults []breach) {
	for _, c := range faults {
		t.Run(string(c.fault), func(t *testing.T) {
			t.Parallel()
			for _, called := range c.by {
				r := rule(t, called)
				err := r.Run(t, storetest.Impatient(harness(c.fault), time.Second))
				require.Error(t, err, called)
				assert.Contains(t, err.Error(), fmt.Sprintf("%s (%s) is broken", r.Number, r.Name))
				assert.Contains(t, err.Error(), r.Text)
				assert.NotContains(t, err.Error(), "panic")
				assert.Regexp(t, `by:   \w+\.go:\d+$`, err.Error())
			}
		})
	}
}

func TestRules_AreEachBrokenBySomeStore(t *testing.T) {
	broken := map[string]bool{}
	for _, c := range slices.Concat(faults, sharedFaults) {
		for _, called := range c.by {
			broken[called] = true
		}
	}
	for _, r := range storetest.Rules() {
		assert.True(t, broken[r.Number+" "+r.Name], "no store breaks %s %s", r.Number, r.Name)
	}
}

// panicky panics instead of answering.
type panicky struct{ limiter.Store }

func TestRule_ReportsAPanicAsBroken(t *testing.T) {
	h := storetest.Harness{
		New: func(testing.TB, func() time.Time) limiter.Store { return panicky{} },
	}
	err := rule(t, "R4 outcomes").Run(t, h)
	require.ErrorContains(t, err, "R4 (outcomes) is broken")
	require.ErrorContains(t, err, "panic: runtime error")
	require.ErrorContains(t, rule(t, "R4 outcomes").Run(t, storetest.Harness{}), "Harness.New = nil")
}
