package keying

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ration-go/ration/limiter"
)

// Workloads says which label of a caller's own choice splits its budget, for
// budgets [limiter.ByWorkload]. Callers may send what they like: a label that is
// listed has an account of its own, all others are folded into a few slots, the
// same in every process. So one principal owns at most len(Listed) + Slots + 1
// accounts on each route, the last for requests without a label, and no label
// gets it more than its other budgets give. Addresses have no workloads. The
// zero value means that there are none.
type Workloads struct {
	// Header is the header, or the gRPC metadata key, with the label: its first
	// line counts.
	Header string
	// Label returns the label instead, such as the client's name in a verified
	// token. It is called with no lock held, by many goroutines, with the context
	// of the request. Set either it or Header.
	Label func(context.Context) string
	// Listed are the labels with accounts of their own: at most 256, each of 1 to
	// 64 printable ASCII characters and not beginning with "~".
	Listed []string
	// Slots is the number of accounts for all other labels, 1 to 256; 0 means 16.
	// A label's slot is FNV-1a over its first 256 bytes, modulo Slots.
	Slots int
}

const (
	maxSlots  = 256
	maxListed = 256
	maxLabel  = 64
	hashed    = 256
)

// Validate returns nil or a *[limiter.ConfigError].
func (w Workloads) Validate() error {
	off := w.Header == "" && w.Label == nil
	switch {
	case w.Header != "" && w.Label != nil:
		return wrong("Workloads.Label", nil, "want Header or Label, not both")
	case off && (w.Listed != nil || w.Slots != 0):
		return wrong("Workloads", nil,
			"say where labels are: want Header or Label")
	case w.Slots < 0 || w.Slots > maxSlots:
		return wrong("Workloads.Slots", w.Slots,
			"want 1 to 256, or 0 for 16")
	case len(w.Listed) > maxListed:
		return wrong("Workloads.Listed", len(w.Listed),
			"want at most 256 labels")
	case !isToken(w.Header):
		return wrong("Workloads.Header", w.Header,
			"want a name such as X-Workload")
	}
	for i, label := range w.Listed {
		if !printable(label) || len(label) > maxLabel || label[0] == '~' ||
			slices.Contains(w.Listed[:i], label) {
			return wrong(fmt.Sprintf("Workloads.Listed[%d]", i), label,
				`want 1 to 64 printable ASCII characters, not "~" first, and each label once`)
		}
	}
	return nil
}

// isToken reports whether s can be the name of a header (RFC 9110, section 5.1),
// or is empty.
func isToken(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune(`()<>@,;:\"/[]?={}`, c)
	})
}

// Folding is [Workloads] ready for use. It is immutable and safe for concurrent
// use; nil folds all labels into none.
type Folding struct {
	header string
	label  func(context.Context) string
	listed map[string]struct{}
	slots  uint64
}

// Folding returns the workloads ready for use, nil for the zero value. The error
// is that of Validate.
func (w Workloads) Folding() (*Folding, error) {
	if err := w.Validate(); err != nil {
		return nil, err
	}
	if w.Header == "" && w.Label == nil {
		return nil, nil
	}
	f := &Folding{w.Header, w.Label, make(map[string]struct{}, len(w.Listed)), uint64(w.Slots)}
	if f.slots == 0 {
		f.slots = 16
	}
	for _, label := range w.Listed {
		f.listed[label] = struct{}{}
	}
	return f, nil
}

// FoldingFor is Folding for the adapter of a limiter: where a budget is ByWorkload
// and w says nothing of labels, that is an error, too. The budget would have one
// account for each principal.
func (w Workloads) FoldingFor(l *limiter.Limiter) (*Folding, error) {
	f, err := w.Folding()
	split := slices.ContainsFunc(l.Budgets(), func(b limiter.Budget) bool {
		return b.Scope&limiter.ByWorkload != 0
	})
	if err == nil && f == nil && split {
		return nil, wrong("Workloads", nil,
			"a budget is ByWorkload: say where labels are, want Header or Label")
	}
	return f, err
}

// Request returns the workload of a request of net/http.
func (f *Folding) Request(r *http.Request) string {
	switch {
	case f == nil:
		return ""
	case f.label != nil:
		return f.Fold(f.label(r.Context()))
	default:
		return f.Fold(r.Header.Get(f.header))
	}
}

// Call returns the workload of a call whose headers lines returns, as does
// metadata.ValueFromIncomingContext.
func (f *Folding) Call(
	ctx context.Context, lines func(ctx context.Context, name string) []string,
) string {
	switch {
	case f == nil:
		return ""
	case f.label != nil:
		return f.Fold(f.label(ctx))
	}
	if found := lines(ctx, f.header); len(found) > 0 {
		return f.Fold(found[0])
	}
	return ""
}

// slotNames name the slots. No listed label begins with "~".
var slotNames = func() (names [maxSlots]string) {
	for i := range names {
		names[i] = fmt.Sprintf("~%d", i)
	}
	return names
}()

// Fold returns the workload of a label: the label itself where it is listed,
// "~" and a number where it is not, and "" for none. It does not allocate.
func (f *Folding) Fold(label string) string {
	if f == nil || label == "" {
		return ""
	}
	if _, ok := f.listed[label]; ok {
		return label
	}
	return slotNames[fnv(label[:min(len(label), hashed)])%f.slots]
}

// fnv is FNV-1a, 64 bits: the caller may choose a slot, all the slots are its
// own. It must stay the same for ever, and in all processes.
func fnv(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
