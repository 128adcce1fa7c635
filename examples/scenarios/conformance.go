package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"slices"
	"time"

	"github.com/ration-go/ration/limiter"
)

//go:embed testdata/token_bucket.json
var vectors []byte

const aboutConformance = `Is a token bucket exact? Each case of token_bucket.json is a list of requests with the
right decisions, waits and final balance, played through a Bucket and through a Limiter.`

// vector is a token bucket, requests, and what has to come of them. A request
// may be late: its instant then lies before that of the one before it.
type vector struct {
	Name     string     `json:"name"`
	Capacity int64      `json:"capacity"`
	Rate     int64      `json:"rate_per_second"`
	Requests [][2]int64 `json:"requests_ms_cost"` // milliseconds since the start, cost
	Answers  []answer   `json:"want_decision_wait_ms"`
	Tokens   string     `json:"want_tokens"` // in the end, as a fraction
}

// answer is a decision and its wait in milliseconds, rounded up.
type answer struct {
	outcome string
	wait    int64
}

// UnmarshalJSON reads the form ["deny", 400].
func (a *answer) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&a.outcome, &a.wait})
}

func answerOf(d limiter.Decision) answer {
	wait := (d.RetryAfter + time.Millisecond - 1) / time.Millisecond
	return answer{d.Outcome.String(), int64(wait)}
}

// conformance plays vectors through a Bucket, whose balance in the end must be
// the same fraction, and through a Limiter over a store.
func conformance(w io.Writer, open opener) error {
	var cases []vector
	if err := json.Unmarshal(vectors, &cases); err != nil {
		return err
	}
	mismatches := 0
	for _, v := range cases {
		ok, err := v.matches(open)
		if err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		if !ok {
			mismatches++
			fmt.Fprintln(w, "token_bucket.json mismatch:", v.Name)
		}
	}
	fmt.Fprintf(w, "token_bucket.json cases=%d mismatches=%d\n", len(cases), mismatches)
	return nil
}

// matches reports whether everything comes out as the vector wants it.
func (v *vector) matches(open opener) (bool, error) {
	limit := limiter.Limit{Tokens: v.Rate, Per: time.Second, Burst: v.Capacity}
	c := &clock{start}
	bucket, err := limiter.NewBucket(limit, c.now)
	if err != nil {
		return false, err
	}
	alone, err := v.play(c, bucket.Take)
	if err != nil {
		return false, err
	}
	tokens, ok := new(big.Rat).SetString(v.Tokens)
	ok = ok && bucket.Tokens().Cmp(tokens) == 0

	l, err := newLimiter(open, c, limiter.Budget{
		Name: "vectors", Limit: limit, OnError: limiter.Closed,
	})
	if err != nil {
		return false, err
	}
	stored, err := v.play(c, func(cost int64) (limiter.Decision, error) {
		return l.Take(context.Background(), limiter.Caller{}, cost)
	})
	return ok && slices.Equal(alone, v.Answers) && slices.Equal(stored, v.Answers), err
}

// play sends the requests at their instants and returns the answers.
func (v *vector) play(c *clock, take func(int64) (limiter.Decision, error)) ([]answer, error) {
	var answers []answer
	for _, r := range v.Requests {
		c.at = start.Add(time.Duration(r[0]) * time.Millisecond)
		d, err := take(r[1])
		if err != nil {
			return nil, err
		}
		answers = append(answers, answerOf(d))
	}
	return answers, nil
}
