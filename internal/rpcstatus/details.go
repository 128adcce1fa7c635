package rpcstatus

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Details are the details of a status that are the same for all calls refused for one
// Reason. They are encoded once, and must not be changed.
type Details struct {
	QuotaFailure []byte // a google.rpc.QuotaFailure; nil if no budget refused
	ErrorInfo    []byte // a google.rpc.ErrorInfo; nil if nobody reads the answer
	status       []byte // both, as fields of a google.rpc.Status
	connect      []byte // both, as elements of a JSON array; each follows a comma
}

// The types of details.
const (
	TypeURL      = "type.googleapis.com/"
	RetryInfo    = "google.rpc.RetryInfo"
	QuotaFailure = "google.rpc.QuotaFailure"
	ErrorInfo    = "google.rpc.ErrorInfo"
)

// reasons are the reasons in ErrorInfo, and the descriptions in QuotaFailure.
var reasons = [...]struct{ reason, description string }{
	usedUp:      {"RATE_LIMIT_EXCEEDED", "the budget is used up"},
	tooCostly:   {"COST_ABOVE_LIMIT", "the cost is above what the budget can ever hold"},
	blocked:     {"CALLER_BLOCKED", "the budget allows this caller nothing"},
	suspended:   {"CALLER_SUSPENDED", "the budget allows this caller nothing"},
	storeFailed: {"RATE_LIMITER_UNAVAILABLE", ""},
	nobody:      {"PRINCIPAL_REQUIRED", ""},
	mistake:     {"RATE_LIMITER_ERROR", ""},
	gone:        {},
}

// Cache keeps the Details of one adapter. Readers take no lock. There are few entries, so
// a linear search is faster than a map. Entries are never evicted; what does not fit is
// encoded for each call. The zero Cache is usable.
type Cache struct {
	Domain string // in ErrorInfo: the name of the service; empty means "ration"
	known  atomic.Pointer[[]entry]
	write  sync.Mutex
}

type entry struct {
	reason  Reason
	details *Details
}

const maxEntries = 32

// Details returns the details for a reason.
func (c *Cache) Details(r Reason) *Details {
	known := c.read()
	for i := range known {
		if known[i].reason == r {
			return known[i].details
		}
	}
	d := r.details(c.Domain)
	if len(known) < maxEntries {
		c.add(entry{r, d}) // checks the size again under the lock
	}
	return d
}

func (c *Cache) read() []entry {
	if known := c.known.Load(); known != nil {
		return *known
	}
	return nil
}

func (c *Cache) add(e entry) {
	c.write.Lock()
	defer c.write.Unlock()
	known := c.read()
	if len(known) >= maxEntries ||
		slices.ContainsFunc(known, func(k entry) bool { return k.reason == e.reason }) {
		return
	}
	known = append(slices.Clip(known), e)
	c.known.Store(&known)
}

// details encodes the details for a reason.
func (r Reason) details(domain string) *Details {
	d := &Details{}
	if r.why == gone {
		return d
	}
	if r.why <= suspended {
		d.QuotaFailure = appendField(nil, 1, r.violation())
		d.add(QuotaFailure, d.QuotaFailure)
	}
	if domain == "" {
		domain = "ration"
	}
	info := appendField(nil, 1, reasons[r.why].reason)
	info = appendField(info, 2, domain)
	if r.subject == named {
		budget := appendField(nil, 1, "budget")
		info = appendField(info, 3, appendField(budget, 2, r.budget))
	}
	d.ErrorInfo = info
	d.add(ErrorInfo, info)
	return d
}

func (d *Details) add(name string, value []byte) {
	d.status = appendAny(d.status, name, value)
	d.connect = appendDetail(append(d.connect, ','), name, value)
}

// violation encodes a google.rpc.QuotaFailure.Violation.
func (r Reason) violation() []byte {
	subject, description := "shared", reasons[r.why].description
	switch {
	case r.subject == named:
		subject = "budget:" + r.budget
	case r.subject == caller:
		subject = "caller"
		if r.why == blocked || r.why == suspended {
			description = "the caller is blocked"
		}
	}
	b := appendField(nil, 1, subject)
	b = appendField(b, 2, description)
	if r.subject == named {
		b = appendField(b, 5, r.budget)
		b = appendInteger(b, 7, r.capacity)
	}
	return b
}

// RetryInfo returns the wait as a google.rpc.RetryInfo, or nil if there is none.
func (s *Status) RetryInfo() []byte {
	if s.Wait == 0 {
		return nil
	}
	delay := make([]byte, 0, 24)
	delay = appendInteger(delay, 1, int64(s.Wait/time.Second))
	delay = appendInteger(delay, 2, int64(s.Wait%time.Second))
	return appendField(make([]byte, 0, 26), 1, delay)
}

// Encode returns the status as a google.rpc.Status.
func (s *Status) Encode(d *Details) []byte {
	b := make([]byte, 0, 160+len(d.status))
	b = appendInteger(b, 1, int64(s.Code))
	b = appendField(b, 2, s.Message())
	if info := s.RetryInfo(); info != nil {
		b = appendAny(b, RetryInfo, info)
	}
	return append(b, d.status...)
}

// AppendConnect appends the status as the JSON of a Connect error.
func (s *Status) AppendConnect(b []byte, d *Details) []byte {
	b = append(b, `{"code":"`+names[s.Code]+`","message":`...)
	b = strconv.AppendQuote(b, s.Message())
	details := d.connect
	info := s.RetryInfo()
	switch {
	case info != nil:
		b = append(b, `,"details":[`...)
		b = append(appendDetail(b, RetryInfo, info), details...)
		b = append(b, ']')
	case len(details) > 0:
		b = append(b, `,"details":[`...)
		b = append(b, details[1:]...) // without its comma
		b = append(b, ']')
	}
	return append(b, '}')
}

// appendDetail appends a detail of a Connect error.
func appendDetail(b []byte, name string, value []byte) []byte {
	b = append(b, `{"type":"`+name+`","value":"`...)
	b = base64.RawStdEncoding.AppendEncode(b, value)
	return append(b, `"}`...)
}

// appendAny appends a field details of google.rpc.Status, which is a google.protobuf.Any.
func appendAny(b []byte, name string, value []byte) []byte {
	detail := make([]byte, 0, len(TypeURL)+len(name)+len(value)+8)
	detail = appendField(detail, 1, TypeURL+name)
	return appendField(b, 3, appendField(detail, 2, value))
}

// appendField appends a string, bytes or a message.
func appendField[T string | []byte](b []byte, number byte, value T) []byte {
	b = append(b, number<<3|2)
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}

// appendInteger appends an integer, unless it is 0.
func appendInteger(b []byte, number byte, n int64) []byte {
	if n == 0 {
		return b
	}
	return binary.AppendUvarint(append(b, number<<3), uint64(n))
}
