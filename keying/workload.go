package keying

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ration-go/ration/limiter"
)

// Workloads says which label splits a caller's budget, for budgets that are
// [limiter.ByWorkload]. Callers may send any label. A listed label has an account of
// its own; all others are hashed into a few slots, the same in every process. So one
// principal has at most len(Listed) + Slots + 1 accounts on each route, the last one
// for requests without a label, and never gets more than its other budgets allow.
// Addresses have no workloads. The zero value means no workloads.
type Workloads struct {
	// Header is the header, or the gRPC metadata key, with the label. Its first line
	// counts.
	Header string
	// Label returns the label from the context of the request, such as the client's
	// name in a verified token. It is called with no lock held, by many goroutines.
	// Set either Label or Header.
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
			"the source of the labels is missing: want Header or Label")
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

// Folding maps labels to workloads, as [Workloads] says. It is immutable and safe for
// concurrent use. The nil Folding maps all labels to "".
type Folding struct {
	header string
	label  func(context.Context) string
	listed map[string]struct{}
	slots  uint64
}

// Folding returns the Folding of w, which is nil for the zero value. The error is that
// of Validate.
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

// Check returns a *[limiter.ConfigError] if a budget is ByWorkload and f is nil: the
// budget would have only one account for each principal.
func (f *Folding) Check(budgets []limiter.Budget) error {
	if f == nil && slices.ContainsFunc(budgets, func(b limiter.Budget) bool {
		return b.Scope&limiter.ByWorkload != 0
	}) {
		return wrong("Workloads", nil,
			"a budget is ByWorkload, but the source of the labels is missing: want Header or Label")
	}
	return nil
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

// Call returns the workload of a call. lines returns the lines of a header, as
// metadata.ValueFromIncomingContext does.
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

// slotNames are the workloads of the slots. No listed label begins with "~".
var slotNames = func() (names [maxSlots]string) {
	for i := range names {
		names[i] = fmt.Sprintf("~%d", i)
	}
	return names
}()

// Fold returns the workload of a label: the label itself if it is listed, else "~" and
// the number of its slot, and "" for an empty label. It does not allocate.
func (f *Folding) Fold(label string) string {
	if f == nil || label == "" {
		return ""
	}
	if _, ok := f.listed[label]; ok {
		return label
	}
	return slotNames[fnv(label[:min(len(label), hashed)])%f.slots]
}

// fnv is FNV-1a with 64 bits. It need not be keyed: a caller that chooses its slot
// chooses among its own. It must never change, so that all processes agree.
func fnv(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
