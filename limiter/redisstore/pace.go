package redisstore

import "time"

const (
	minSlots = 2
	maxSlots = 8
	maxLost  = 8
	// grain is the shortest interval between two sweeps by the timer.
	grain = int64(time.Millisecond)
	// many is how many requests in a call are a load.
	many = 8
	// slotEvery is the round trip for which one slot more is worth it.
	slotEvery = int64(2500 * time.Microsecond)
)

// limit returns how many slots there are.
func (c *combiner) limit() int {
	n := int((c.rtt + slotEvery - 1) / slotEvery)
	return min(max(n, minSlots), maxSlots, c.maxSlots)
}

// hasSlot reports whether there is a slot for a call.
func (c *combiner) hasSlot() bool { return c.slots < c.limit() && c.lost < maxLost }

// turn returns when the next call may start. The first may at once, and the second if
// there is little to do, or enough for a call. Otherwise one call of many requests costs
// less than two of few: near a server the next waits for the one in flight, unless that
// takes twice as long as usual. Far from it calls start at equal distances: if they
// bunched, the first requests of a round trip would take all slots, and the others would
// wait for the rest of it.
func (c *combiner) turn() int64 {
	switch {
	case c.slots == 0,
		c.slots < minSlots && (c.load < many || c.queue.requests.count >= many):
		return 0
	case c.rtt < slotEvery:
		return c.started + 2*c.rtt
	default:
		return c.started + c.rtt/int64(c.limit())
	}
}

// margin returns how much time a request must have left to be worth sending: if
// nothing is in flight, any.
func (c *combiner) margin() int64 {
	if c.slots == 0 {
		return 0
	}
	rtt := c.roundTrip()
	return min(rtt+rtt/2+min(int64(5*time.Millisecond), c.timeout/10), c.timeout*3/4)
}

// roundTrip returns the estimate of the round trip. After a failure it may be wrong.
func (c *combiner) roundTrip() int64 {
	if c.doubted {
		return min(c.rtt, c.timeout/4)
	}
	return c.rtt
}

// saw learns from the round trip of a call.
func (c *combiner) saw(rtt int64, failed bool) {
	if c.doubted = failed; failed {
		c.queue.late = errNoAnswer
		return
	}
	c.queue.late = errOverload
	if c.rtt == 0 {
		c.rtt = rtt
	}
	c.rtt += (rtt - c.rtt) / 8
}
