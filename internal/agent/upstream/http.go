package upstream

import (
	"net/http"
	"time"

	"agentworker/internal/task"
)

// HTTP is the error of a call that was answered with a status of 300 or more, unless kind is known to be another one: by
// the service's own words. A delay that the headers name is kept to.
func (s Service) HTTP(kind Kind, h http.Header, detail string) error {
	if kind == Throttled {
		return s.Throttle(h, detail)
	}
	err := s.Fail(kind, detail)
	if after, ok := Delay(h, time.Now()); ok && !kind.permanent {
		return task.RetryAfter(err, max(after, time.Second))
	}
	return err
}
