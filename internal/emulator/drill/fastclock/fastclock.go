// Package fastclock is a clock that runs faster than real time.
package fastclock

import (
	"time"

	"github.com/jonboulle/clockwork"
)

// Clock runs faster than real time, so that a queue's delays and visibility timeouts pass in a fraction of it. Only Now, Since,
// Until and NewTimer do; the queues use no more.
type Clock struct {
	clockwork.Clock
	began  time.Time
	start  time.Time // what it showed then
	factor time.Duration
}

// New makes a clock that runs factor times as fast as real time, and is behind it until the given time has passed: those
// who compare its times with the time of day see none that is still to come.
func New(factor int, behind time.Duration) Clock {
	now := time.Now()
	return Clock{clockwork.NewRealClock(), now, now.Add(-behind * time.Duration(factor-1)), time.Duration(factor)}
}

// Now implements clockwork.Clock.
func (c Clock) Now() time.Time {
	return c.start.Add(time.Duration(int64(c.factor) * int64(time.Since(c.began))))
}

// Since implements clockwork.Clock. It is as exact as a millisecond of real time: whoever looks whether the clock was set
// meanwhile must not take its haste for that.
func (c Clock) Since(t time.Time) time.Duration {
	return c.Now().Sub(t).Truncate(time.Duration(int64(c.factor) * int64(time.Millisecond)))
}

// Until implements clockwork.Clock.
func (c Clock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// NewTimer implements clockwork.Clock.
func (c Clock) NewTimer(d time.Duration) clockwork.Timer {
	return timer{c.Clock.NewTimer(d / c.factor), c.factor}
}

type timer struct {
	clockwork.Timer
	factor time.Duration
}

// Reset implements clockwork.Timer.
func (t timer) Reset(d time.Duration) bool { return t.Timer.Reset(d / t.factor) }
