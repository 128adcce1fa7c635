package redisstore

import (
	"context"
	_ "embed" // the script
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ration-go/ration/limiter"
)

//go:embed ration.lua
var scriptText string

var scriptHash = redis.NewScript(scriptText).Hash()

// command is a command that is sent at most once: the client must not try it
// again by itself.
type command struct{ *redis.Cmd }

// NoRetry forbids the client's own retries.
func (*command) NoRetry() bool { return true }

// argument is one of the last two words of a command: the limits or the lines. The
// client asks for the bytes when it writes the command to a connection. What looks at
// the words of commands, such as tracing, does not ask.
type argument struct{ bytes func() []byte }

// MarshalBinary returns the bytes.
func (a *argument) MarshalBinary() ([]byte, error) { return a.bytes(), nil }

// String is what a log or a trace shows.
func (a *argument) String() string { return "(binary)" }

// call is a batch on its way: one script, and one round trip if nothing fails.
type call struct {
	lines []*line // none: a probe
	ends  int64   // when the last of its requests does, in nanoseconds of the store's clock
	began int64   // when it was made

	// Guarded by the lock of the combiner.
	cancel  context.CancelFunc // of a call that may last longer than its requests; or nil
	sent    bool               // it may have reached the server; who gets an answer before is not in it
	written int64              // when it was sent last
	lost    bool               // it has lost its slot
	missed  bool               // the breaker knows that it had no answer in time
}

// outcome is what became of a call.
type outcome struct {
	err   error
	reply string // without the clock
	clock int64  // what the server's clock read, in microseconds
	took  int64  // from when it was written to the reply, in nanoseconds; if it was not, from its start
}

// replied reports whether the server has replied, if only that it is too late.
func (o *outcome) replied() bool {
	_, isReply := errors.AsType[redis.Error](o.err)
	return o.err == nil || isReply || errors.Is(o.err, errLate)
}

// send makes the call. late is how much longer than its requests it may last, so that
// a connection that is being made can be finished: the requests have their answers by
// then, and nothing is left in the call.
func (s *Store) send(b *call, late time.Duration) outcome {
	ends := s.clock.start.Add(time.Duration(b.ends) + late)
	ctx, cancel := context.WithDeadline(context.Background(), ends)
	defer cancel()
	if late > 0 {
		s.combiner.cancelable(b, cancel)
	}
	return s.try(ctx, b)
}

// guarded returns what send returns, with a panic of the client as an error: nobody
// could recover it in a goroutine of the store's own.
func guarded(send func() outcome) (o outcome) {
	defer func() {
		if p := recover(); p != nil {
			o = outcome{err: fmt.Errorf("redisstore: the client panicked: %v", p)}
		}
	}()
	return send()
}

// try runs the script. It tries again, once for each cause, only if nothing has run:
// the server does not have the script; its clock is not known, or was set; or it
// refuses for a moment, as it does in a failover.
func (s *Store) try(ctx context.Context, b *call) outcome {
	var load, learned, waited bool
	for {
		o := s.eval(ctx, b, load)
		_, passes := refusal(o.err)
		again := passes || errors.Is(o.err, errLate)
		if again && !s.combiner.unsent(b) {
			return o
		}
		switch {
		case passes && strings.HasPrefix(o.err.Error(), "NOSCRIPT ") && !load:
			load = true
		case errors.Is(o.err, errLate) && !learned && ctx.Err() == nil:
			learned = true
		case passes && !waited:
			waited = true
			if !pause(ctx, min(s.timeout/10, 50*time.Millisecond)) {
				return o
			}
		default:
			return o
		}
	}
}

// encode returns the limits and the lines, as the script wants them.
func (b *call) encode() (limits, lines []byte) {
	size := 0
	for _, l := range b.lines {
		size += l.bytes()
	}
	lines = make([]byte, 0, size)
	var rules []*rule
	number := func(r *rule) uint16 {
		for i, other := range rules {
			if *other == *r {
				return uint16(i)
			}
		}
		rules = append(rules, r)
		return uint16(len(rules) - 1)
	}
	for _, l := range b.lines {
		lines = l.appendTo(lines, number)
	}
	limits = make([]byte, 0, len(rules)*maxLimit)
	for _, r := range rules {
		limits = r.appendTo(limits)
	}
	return limits, lines
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

// words returns the words of the command.
func (s *Store) words(b *call, load bool) []any {
	count := 0
	for _, l := range b.lines {
		count += len(l.draws)
	}
	words := make([]any, 0, 3+count+3)
	if load {
		words = append(words, "eval", scriptText, count)
	} else {
		words = append(words, "evalsha", scriptHash, count)
	}
	deadline := s.clock.deadline(s.clock.start.Add(time.Duration(b.ends)))
	control := appendNumbers(make([]byte, 0, 3*8), deadline, s.maxAhead, s.slack)
	for _, l := range b.lines {
		for j := range l.draws {
			words = append(words, &l.draws[j].name)
			if l.verb == reset || l.draws[j].rule.kind == limiter.RollingLog {
				control = binary.LittleEndian.AppendUint16(control, uint16(len(words)-3))
			}
		}
	}
	var lines []byte
	return append(words, control,
		&argument{func() (limits []byte) {
			limits, lines = s.combiner.encode(b, s.elapsed())
			return limits
		}},
		&argument{func() []byte { return lines }})
}

// eval sends the script, by its hash or with its text, and learns from the reply what
// the server's clock says.
func (s *Store) eval(ctx context.Context, b *call, load bool) (o outcome) {
	cmd := &command{redis.NewCmd(ctx, s.words(b, load)...)}
	cmd.SetFirstKeyPos(3)
	client := s.client
	if len(b.lines) == 0 {
		client = s.prober
	}
	if o.err = client.Process(ctx, cmd); o.err != nil {
		o.took = s.elapsed() - max(b.began, b.written)
		return o
	}
	if o.reply, o.err = cmd.Text(); o.err != nil {
		return o
	}
	n := numbers{text: o.reply}
	if o.clock = n.within(0, most); n.bad {
		o.err = garbled(o.reply)
		return o
	}
	o.reply = n.text
	received := time.Now()
	sent := s.clock.start.Add(time.Duration(b.written))
	o.took = int64(received.Sub(sent))
	s.clock.saw(o.clock, sent, received)
	if o.reply == "" {
		o.err = errLate
	}
	return o
}
