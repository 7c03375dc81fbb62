package doctor

import (
	"slices"
	"strings"

	"agentworker/internal/topology"
)

func (s State) judgePair(e *examination, p Pair) {
	if p.Queue != nil {
		s.judgeQueue(e, p.Queue)
		s.judgeMappings(e, p)
	}
	if p.DeadLetter != nil {
		s.judgeQueue(e, p.DeadLetter)
		s.judgeDeadLetters(e, p)
	}
	if p.Queue != nil && p.DeadLetter != nil {
		judgeRedrive(e, p)
		s.judgeAge(e, p)
	}
}

func (s State) judgeQueue(e *examination, q *Queue) {
	e.check(Encryption, q.Name, q.ManagedEncryption || q.KeyEncrypts, "%s: its messages are not encrypted where they lie", q.Name)
	if !s.Plain {
		e.check(TLS, q.Name, q.Policy.TLSOnly(), "%s: its policy does not refuse requests without TLS", q.Name)
	}
}

func judgeRedrive(e *examination, p Pair) {
	q, dead := p.Queue, p.DeadLetter
	e.check(Redrive, q.Name, q.Redrive != nil, "%s: it has no redrive policy, so that a message that cannot be done comes back until it expires", q.Name)
	if q.Redrive != nil {
		e.check(Redrive, q.Name, q.Redrive.TargetARN == dead.ARN, "%s: its dead letters go to %s, where nobody looks, and not to %s", q.Name, q.Redrive.TargetARN, dead.ARN)
	}
	receives := 0
	if dead.Redrive != nil {
		receives = dead.Redrive.MaxReceiveCount
	}
	e.check(Redrive, dead.Name, dead.Redrive == nil, "%s: this dead-letter queue has a redrive policy of its own: a message that has been looked at %s vanishes from it",
		dead.Name, plural(receives, "time", "times"))
	switch {
	case dead.Allow == nil || dead.Allow.Permission == "allowAll":
		e.check(RedriveAllow, dead.Name, false, "%s: any queue may send its dead letters here, which would be taken for tasks", dead.Name)
	default:
		allowed := dead.Allow.Permission == "byQueue" && slices.Contains(dead.Allow.Sources, q.ARN)
		e.check(RedriveAllow, dead.Name, allowed, "%s: its redrive allow policy is %s and does not let %s in", dead.Name, dead.Allow.Permission, q.Name)
	}
}

func (s State) judgeDeadLetters(e *examination, p Pair) {
	n := p.DeadLetter.Messages
	e.check(DeadLetters, p.DeadLetter.Name, n == 0, "%s: %s there: tasks that failed and that nobody has moved back or purged", p.DeadLetter.Name, plural(n, "message lies", "messages lie"))
}

// judgeAge finds a queue that is not worked off: a message older than all of its deliveries should take.
func (s State) judgeAge(e *examination, p Pair) {
	if p.Queue.Age == nil {
		return
	}
	q := topology.TaskQueue{Queue: p.Queue.topology(), MaxReceiveCount: topology.Default().Tasks.MaxReceiveCount}
	if p.Queue.Redrive != nil {
		q.MaxReceiveCount = p.Queue.Redrive.MaxReceiveCount
	}
	e.check(MessageAge, p.Queue.Name, *p.Queue.Age <= q.Patience(), "%s: its oldest message is %v old, and all of its deliveries should have taken %v at most",
		p.Queue.Name, *p.Queue.Age, q.Patience())
}

func (s State) judgeMappings(e *examination, p Pair) {
	if !p.MappingsRead {
		return
	}
	own := s.own(p)
	e.check(Mapping, p.Queue.Name, len(own) > 0, "%s: no event source mapping hands its messages to the worker", p.Queue.Name)
	for _, m := range own {
		off := strings.HasPrefix(m.State, "Disabl") || m.State == "Deleting"
		e.check(Mapping, p.Queue.Name, !off, "%s: its event source mapping %s is %s: nothing is worked off", p.Queue.Name, m.UUID, strings.ToLower(m.State))
		e.check(Filter, p.Queue.Name, !m.Filters, "%s: its event source mapping %s filters, and what a filter leaves out is deleted unseen", p.Queue.Name, m.UUID)
	}
	var others []string
	for _, m := range p.Mappings {
		if !slices.ContainsFunc(own, func(o EventSource) bool { return o.UUID == m.UUID }) {
			others = append(others, m.FunctionARN)
		}
	}
	e.check(Consumer, p.Queue.Name, len(others) == 0, "%s: another function takes messages out of it: %s", p.Queue.Name, strings.Join(others, ", "))
}
