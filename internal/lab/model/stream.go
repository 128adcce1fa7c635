package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ration-go/ration/limiter"
)

// Op is what a step does.
type Op string

// The operations.
const (
	Take   Op = "take"
	Peek   Op = "peek"
	Settle Op = "settle"
	Reset  Op = "reset"
)

// Step is one call to a store.
type Step struct {
	ID int // its own number, which outlives the deletion of other steps
	Op Op
	// At is what the clock reads, in nanoseconds since the Unix epoch. The ends
	// of int64 stand for the years 1 and 9999.
	At          int64
	Charges     []limiter.Charge // all but Settle
	Of          int              // Settle: the ID of the take
	Corrections []int64          // Settle: one for each charge that was paid
}

// Stream is a sequence of calls. Its text form has a line for each step:
//
//	1 take 1500 a1 3 100/1m burst=20; b1 1 5/1s fixed-window shadow
//	2 settle 2500 1 +2 -1
//	3 peek 2500 a1 0 100/1m
//	4 reset 2500 a1 0 100/1m
//
// which is: number, operation, instant, charges (budget and caller, cost,
// limit). Lines that begin with # are comments.
type Stream []Step

// String returns the text form.
func (s Stream) String() string {
	var b strings.Builder
	for _, step := range s {
		fmt.Fprintf(&b, "%d %s %d ", step.ID, step.Op, step.At)
		if step.Op == Settle {
			fmt.Fprintf(&b, "%d", step.Of)
			for _, c := range step.Corrections {
				fmt.Fprintf(&b, " %+d", c)
			}
			b.WriteByte('\n')
			continue
		}
		for i, c := range step.Charges {
			if i > 0 {
				b.WriteString("; ")
			}
			fmt.Fprintf(&b, "%s%s %d %v", c.Key.Budget, c.Key.Principal.ID, c.Cost, c.Limit)
			if c.Shadow {
				b.WriteString(" shadow")
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Parse reads the text form.
func Parse(text string) (Stream, error) {
	var s Stream
	for number, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		step, err := parseStep(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		s = append(s, step)
	}
	return s, nil
}

func parseStep(line string) (step Step, err error) {
	words := strings.SplitN(line, " ", 4)
	if len(words) != 4 {
		return step, fmt.Errorf("%q: want number, operation, instant and more", line)
	}
	step.Op = Op(words[1])
	if step.ID, err = strconv.Atoi(words[0]); err != nil {
		return step, err
	}
	if step.At, err = strconv.ParseInt(words[2], 10, 64); err != nil {
		return step, err
	}
	if step.Op == Settle {
		err = step.parseSettle(words[3])
		return step, err
	}
	for _, part := range strings.Split(words[3], ";") {
		c, err := parseCharge(strings.Fields(part))
		if err != nil {
			return step, err
		}
		step.Charges = append(step.Charges, c)
	}
	return step, nil
}

func (s *Step) parseSettle(text string) (err error) {
	words := strings.Fields(text)
	if s.Of, err = strconv.Atoi(words[0]); err != nil {
		return err
	}
	for _, word := range words[1:] {
		correction, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return err
		}
		s.Corrections = append(s.Corrections, correction)
	}
	return nil
}

func parseCharge(words []string) (c limiter.Charge, err error) {
	if len(words) < 3 {
		return c, fmt.Errorf("%q: want key, cost and limit", words)
	}
	c.Key = NewKey(words[0][:1], words[0][1:])
	if c.Cost, err = strconv.ParseInt(words[1], 10, 64); err != nil {
		return c, err
	}
	if i := slices.Index(words, "shadow"); i >= 0 {
		c.Shadow, words = true, words[:i]
	}
	return c, c.Limit.UnmarshalText([]byte(strings.Join(words[2:], " ")))
}

// NewKey returns the key of a caller in a budget.
func NewKey(budget, caller string) limiter.Key {
	return limiter.Key{Budget: budget, Principal: limiter.Principal{Kind: "user", ID: caller}}
}

// Shrink returns a part of s, as small as deleting steps and charges can make
// it, that still fails.
func Shrink(s Stream, fails func(Stream) bool) Stream {
	for size := len(s) / 2; size > 0; {
		smaller := false
		for i := 0; i+size <= len(s); {
			if without := slices.Delete(slices.Clone(s), i, i+size); fails(without) {
				s, smaller = without, true
				continue
			}
			i++
		}
		if !smaller || size > len(s) {
			size /= 2
		}
	}
	for i := range s {
		for j := 0; len(s[i].Charges) > 1 && j < len(s[i].Charges); {
			without := slices.Clone(s)
			without[i].Charges = slices.Delete(slices.Clone(s[i].Charges), j, j+1)
			if fails(without) {
				s = without
				continue
			}
			j++
		}
	}
	return s
}
