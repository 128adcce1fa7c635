package keying_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration/keying"
	"github.com/ration-go/ration/limiter"
)

const workloadHeader = "X-Workload"

func folding(t *testing.T, w keying.Workloads) *keying.Folding {
	t.Helper()
	f, err := w.Folding()
	require.NoError(t, err)
	return f
}

// The slots are kept in shared stores by processes of every version.
func TestFolding_SlotsStayTheSameForEver(t *testing.T) {
	f := folding(t, keying.Workloads{Header: workloadHeader, Listed: []string{"batch"}})
	long := strings.Repeat("a", 256)
	for label, want := range map[string]string{
		"": "", "batch": "batch", "Batch": "~11", "a": "~12", "b": "~5", "~3": "~6", "\xff\x00": "~10",
		long: "~5", long + "b": "~5", long + "c": "~5", long + "dd": "~5",
	} {
		assert.Equal(t, want, f.Fold(label), "%q", label)
	}
}

func TestFolding_LabelsNeverMakeMoreAccountsThanStated(t *testing.T) {
	for _, slots := range []int{0, 1, 7, 256} {
		f := folding(t, keying.Workloads{
			Header: workloadHeader, Listed: []string{"web", "batch"}, Slots: slots,
		})
		seen := map[string]bool{}
		for i := range 5000 {
			label := fmt.Sprintf("label-%d", i)
			seen[f.Fold(label)] = true
			assert.NotContains(t, f.Fold(label), "label")
		}
		want := slots
		if slots == 0 {
			want = 16
		}
		assert.Len(t, seen, want, "invented labels reach all slots and no more")
		assert.NotContains(t, seen, "web")
	}
}

func TestFolding_ReadsTheSourceThatWasNamed(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.Header[workloadHeader] = []string{"web", "batch"}
	lines := func(_ context.Context, name string) []string { return r.Header[name] }
	listed := []string{"web", "batch"}

	f := folding(t, keying.Workloads{Header: workloadHeader, Listed: listed})
	assert.Equal(t, "web", f.Request(r), "the first line")
	assert.Equal(t, "web", f.Call(r.Context(), lines))
	assert.Empty(t, f.Request(httptest.NewRequest("GET", "/", nil)))

	f = folding(t, keying.Workloads{Listed: listed, Label: func(ctx context.Context) string {
		label, _ := ctx.Value(labelKey{}).(string)
		return label
	}})
	r = r.WithContext(context.WithValue(r.Context(), labelKey{}, "batch"))
	assert.Equal(t, "batch", f.Request(r))
	assert.Equal(t, "batch", f.Call(r.Context(), lines))

	f = folding(t, keying.Workloads{})
	assert.Nil(t, f)
	assert.Empty(t, f.Request(r))
	assert.Empty(t, f.Call(r.Context(), lines))
	assert.Empty(t, f.Fold("web"))
}

type labelKey struct{}

func TestFolding_KeepsTheListThatItWasGiven(t *testing.T) {
	listed := []string{"web"}
	f := folding(t, keying.Workloads{Header: workloadHeader, Listed: listed})
	listed[0] = "batch"
	assert.Equal(t, "web", f.Fold("web"))
	assert.NotEqual(t, "batch", f.Fold("batch"))
}

func TestFolding_DoesNotAllocate(t *testing.T) {
	f := folding(t, keying.Workloads{Header: workloadHeader, Listed: []string{"web"}})
	r := httptest.NewRequest("GET", "/", nil)
	for _, label := range []string{"web", "invented", strings.Repeat("x", 1<<20)} {
		r.Header = http.Header{workloadHeader: {label}}
		assert.Zero(t, testing.AllocsPerRun(100, func() { f.Request(r) }))
	}
}

func TestWorkloads_ValidateNamesWhatIsWrong(t *testing.T) {
	label := func(context.Context) string { return "" }
	many := make([]string, 257)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	tests := []struct {
		name      string
		workloads keying.Workloads
		field     string
	}{
		{"two-sources", keying.Workloads{Header: "X-W", Label: label}, "Workloads.Label"},
		{"listed-without-a-source", keying.Workloads{Listed: []string{"web"}}, "Workloads"},
		{"slots-without-a-source", keying.Workloads{Slots: 4}, "Workloads"},
		{"slots-negative", keying.Workloads{Header: "X-W", Slots: -1}, "Workloads.Slots"},
		{"slots-too-many", keying.Workloads{Header: "X-W", Slots: 257}, "Workloads.Slots"},
		{"no-header-name", keying.Workloads{Header: "X W"}, "Workloads.Header"},
		{"listed-too-many", keying.Workloads{Header: "X-W", Listed: many}, "Workloads.Listed"},
		{"listed-empty", keying.Workloads{Header: "X-W", Listed: []string{"web", ""}},
			"Workloads.Listed[1]"},
		{"listed-too-long", keying.Workloads{Header: "X-W", Listed: []string{strings.Repeat("x", 65)}},
			"Workloads.Listed[0]"},
		{"listed-like-a-slot", keying.Workloads{Header: "X-W", Listed: []string{"~3"}},
			"Workloads.Listed[0]"},
		{"listed-twice", keying.Workloads{Header: "X-W", Listed: []string{"web", "web"}},
			"Workloads.Listed[1]"},
		{"listed-not-printable", keying.Workloads{Header: "X-W", Listed: []string{"a\nb"}},
			"Workloads.Listed[0]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var config *limiter.ConfigError
			_, err := tt.workloads.Folding()
			if assert.ErrorAs(t, err, &config) {
				assert.Equal(t, tt.field, config.Field)
				assert.NotEmpty(t, config.Reason)
			}
		})
	}
	assert.NoError(t, keying.Workloads{}.Validate())
	assert.NoError(t, keying.Workloads{Label: label, Listed: many[:256], Slots: 256}.Validate())
}
