package redisstore

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed ration.lua
var scriptText string

var scriptHash = redis.NewScript(scriptText).Hash()

// verb is what the script does.
type verb int64

const (
	peek verb = iota
	take
	settle
	reset
)

// command is a command that is sent at most once: the client must not try it
// again by itself.
type command struct {
	*redis.Cmd
	sent *atomic.Bool
}

// NoRetry forbids the client's own retries.
func (c *command) NoRetry() bool { return true }

// Args returns the words of the command. A client asks for them when it writes
// the command, so from then on the server may have run it.
func (c *command) Args() []any {
	c.sent.Store(true)
	return c.Cmd.Args()
}

// call is one request to one server: one script, and one round trip where
// nothing fails.
type call struct {
	store *Store
	verb  verb
	keys  []string
	args  []byte // what the script is told about each key, argLen bytes each
	now   int64  // the instant, where the clock is the user's

	connects bool // made by connect, for no caller

	deadline time.Time
	sent     atomic.Bool // the last command may have reached a server
	clock    int64       // what the server's clock read, by the last reply
}

// argLen is the length of the script's argument for a key.
const argLen = headLen + 2*8

// outcome is the reply of a call, without the clock, or its error.
type outcome struct {
	reply string
	err   error
}

// run makes the call within the store's timeout. The error is a
// *limiter.StoreError, or that of ctx.
func (c *call) run(ctx context.Context) (string, error) {
	c.deadline = time.Now().Add(c.store.timeout)
	bounded, cancel := context.WithDeadline(context.WithoutCancel(ctx), c.deadline)
	if ends, ok := ctx.Deadline(); !c.store.inline || ok && ends.Before(c.deadline) {
		return c.runApart(ctx, bounded, cancel)
	}
	defer cancel()
	reply, err := c.try(bounded)
	switch {
	case err == nil:
		return reply, nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	default:
		return "", storeError(err, c.sent.Load())
	}
}

// runApart makes the call in a goroutine of its own, for clients that keep no
// deadline and callers that may leave before it: whoever leaves, leaves it
// running.
func (c *call) runApart(
	ctx, bounded context.Context, cancel context.CancelFunc,
) (string, error) {
	done := make(chan outcome, 1)
	go func() {
		defer cancel()
		done <- c.guarded(bounded)
	}()
	var o outcome
	select {
	case o = <-done:
	case <-ctx.Done():
		return "", ctx.Err()
	case <-bounded.Done():
		select {
		case o = <-done: // at the last moment, or the cause of the end
		default:
			o.err = fmt.Errorf("redisstore: no answer within %v: %w", c.store.timeout,
				context.DeadlineExceeded)
		}
	}
	if o.err != nil {
		return "", storeError(o.err, c.sent.Load())
	}
	return o.reply, nil
}

// guarded is try with a panic of the client, or of a hook in it, as an error:
// nobody could recover it in this goroutine.
func (c *call) guarded(ctx context.Context) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = outcome{err: fmt.Errorf("redisstore: the client panicked: %v", p)}
		}
	}()
	o.reply, o.err = c.try(ctx)
	return o
}

// try runs the script. It tries again, once for each cause, only where nothing
// has run: the server does not have the script; its clock is not known, or was
// set; or it refuses for a moment, as it does in a failover.
func (c *call) try(ctx context.Context) (string, error) {
	var load, learned, waited bool
	for {
		reply, err := c.eval(ctx, load)
		_, passes := refusal(err)
		switch {
		case passes && strings.HasPrefix(err.Error(), "NOSCRIPT ") && !load:
			load = true
		case errors.Is(err, errLate) && !learned && ctx.Err() == nil:
			learned = true
		case passes && !waited:
			waited = true
			if !pause(ctx, c.store.timeout/10) {
				return "", err
			}
		default:
			return reply, err
		}
	}
}

// pause waits for d, and reports whether ctx has not ended by then.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// eval sends the script, by its hash or with its text, and learns from the reply
// what the server's clock says.
func (c *call) eval(ctx context.Context, load bool) (string, error) {
	c.sent.Store(false)
	cmd := &command{redis.NewCmd(ctx, c.words(load)...), &c.sent}
	cmd.SetFirstKeyPos(3)
	sent := time.Now()
	if err := c.store.client.Process(ctx, cmd); err != nil {
		if c.store.inline && !c.connects && timedOut(err) {
			c.store.connect()
		}
		return "", err
	}
	reply, err := cmd.Text()
	if err != nil {
		return "", err
	}
	numbers := numbers{text: reply}
	c.clock = numbers.within(0, most)
	if numbers.bad {
		return "", fmt.Errorf("redisstore: the server replied %q, which is no answer", reply)
	}
	c.store.clock.saw(c.clock, sent, time.Now())
	if numbers.text == "" {
		return "", errLate
	}
	return numbers.text, nil
}

// words returns the words of the command.
func (c *call) words(load bool) []any {
	words := make([]any, 0, 3+2*len(c.keys)+1)
	if load {
		words = append(words, "eval", scriptText, len(c.keys))
	} else {
		words = append(words, "evalsha", scriptHash, len(c.keys))
	}
	for _, key := range c.keys {
		words = append(words, key)
	}
	words = append(words, c.control())
	for rest := c.args; len(rest) > 0; rest = rest[argLen:] {
		words = append(words, rest[:argLen])
	}
	return words
}

// control returns the script's first argument.
func (c *call) control() []byte {
	s := c.store
	return appendNumbers(make([]byte, 0, 5*8), int64(c.verb), s.clock.deadline(c.deadline),
		s.maxAhead, s.slack, c.now)
}
