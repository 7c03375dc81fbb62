package drill

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"agentworker/internal/agent"
	"agentworker/internal/task"
)

const (
	threads = 200
	tickets = 50
)

// way is how a job gets onto its queue.
type way int

const (
	viaAPI     way = iota // over the HTTP API, under an Idempotency-Key
	viaQueue              // straight onto the queue of independent tasks
	viaOrdered            // straight onto the ordered queue
)

// job is one task of the drill.
type job struct {
	n      int
	way    way
	thread string // "": the task begins a new one
	ticket string // whose order it belongs to; "": none
	path   string // of the API
	body   string // as it is sent
	twice  bool   // the client sends it again although it was accepted
	once   bool   // its first attempt asks to be tried again later

	poison string   // code with which it must fail; "": it must succeed
	steps  []string // that must be committed

	// What is known once it has been accepted.
	id        task.ID // "": made of the message id
	messageID string  // "": not told
}

// name is how a job's question names it.
func (j *job) name() string { return fmt.Sprintf("job-%d", j.n) }

// jobs makes n jobs, the same for the same seed: about a half over the API, one in a hundred poisoned.
func jobs(n int, seed uint64, poisonedTickets bool) []*job {
	m := maker{dice: rand.New(rand.NewPCG(seed, 1)), tickets: map[string]int{}}
	list := make([]*job, n)
	poisoned := 0
	for i := range list {
		m.job = &job{n: i + 1, thread: fmt.Sprintf("th-%d", m.dice.IntN(threads))}
		list[i] = m.job
		if i%100 == 50 {
			m.spoil(poisoned, poisonedTickets)
			poisoned++
			continue
		}
		switch share := m.dice.IntN(100); {
		case share < 35:
			m.question(viaAPI)
		case share < 55:
			m.question(viaQueue)
		case share < 80:
			m.several()
		case share < 84:
			m.pause()
		default:
			m.update()
		}
	}
	return list
}

type maker struct {
	*job
	dice    *rand.Rand
	tickets map[string]int // how often each was changed
}

// id makes a task id that does not depend on the time of day.
func (m maker) newID() task.ID {
	var u ulid.ULID
	_ = u.SetTime(ulid.Timestamp(time.Date(2026, 1, 1, 0, 0, 0, m.n*int(time.Millisecond), time.UTC))) // fits
	for i := 6; i < len(u); i++ {
		u[i] = byte(m.dice.UintN(256)) //nolint:gosec // below 256
	}
	return task.ID(m.thread + "." + u.String())
}

// message puts the job straight onto a queue, half of the time with a task id, otherwise as other people's producers do.
func (m maker) message(w way, taskType, fields string) {
	m.way = w
	switch m.dice.IntN(10) {
	case 0, 1, 2, 3, 4:
		m.id = m.newID()
		m.body = fmt.Sprintf(`{"task":%q,"task_id":%q,"thread_id":%q,%s}`, taskType, m.id, m.thread, fields)
	case 5:
		if w == viaQueue && taskType == agent.RAGQuery { // one without a thread
			m.thread = ""
			m.body = fmt.Sprintf(`{"task":%q,%s}`, taskType, fields)
			return
		}
		fallthrough
	default:
		m.body = fmt.Sprintf(`{"task":%q,"thread_id":%q,%s}`, taskType, m.thread, fields)
	}
}

func (m maker) question(w way) {
	m.steps = []string{"generate"}
	question := fmt.Sprintf(`"question":"%s: which number does the ledger answer?"`, m.name())
	if w == viaAPI {
		m.path, m.body = "/agent/query", fmt.Sprintf(`{"thread_id":%q,%s}`, m.thread, question)
		m.twice = m.dice.IntN(10) == 0
		return
	}
	m.message(w, agent.RAGQuery, question)
}

func (m maker) several() {
	n := 2 + m.dice.IntN(4)
	for i := range n {
		m.steps = append(m.steps, fmt.Sprintf("step-%d", i+1))
	}
	w := viaQueue
	if m.dice.IntN(8) == 0 {
		w = viaOrdered
	}
	m.message(w, "drill_steps", fmt.Sprintf(`"steps":%d`, n))
}

func (m maker) pause() {
	m.steps, m.once = []string{"step-1", "step-2"}, true
	m.message(viaQueue, "drill_steps", `"steps":2,"fail":"once"`)
}

// statuses are gone through again and again. None of them can be left out: most changes that skip one are illegal.
var statuses = []string{agent.TicketOpen, agent.TicketInProgress, agent.TicketResolved, agent.TicketClosed}

func (m maker) update() {
	m.ticket = fmt.Sprintf("TK-%d", m.dice.IntN(tickets))
	m.ticketJob(statuses[m.tickets[m.ticket]%len(statuses)])
	m.tickets[m.ticket]++
	m.steps = []string{"update"}
}

func (m maker) ticketJob(status string) {
	m.thread = task.TicketThread(m.ticket)
	if m.dice.IntN(2) == 0 {
		m.path, m.body = "/agent/tickets/"+m.ticket, fmt.Sprintf(`{"status":%q}`, status)
		return
	}
	m.way, m.body = viaOrdered, fmt.Sprintf(`{"task":"update_ticket","ticket_id":%q,"status":%q}`, m.ticket, status)
}

// spoil makes a job that cannot succeed, of one kind after another.
func (m maker) spoil(kind int, ticketsToo bool) {
	fail := func(how, code string) {
		m.message(viaQueue, "drill_steps", fmt.Sprintf(`"steps":2,"fail":%q`, how))
		m.poison, m.steps = code, []string{"step-1"}
	}
	switch kind % 8 {
	case 0:
		m.way, m.body, m.thread, m.poison = viaQueue, "hello {"+m.name(), task.Unparsed, task.CodeMalformed
	case 1:
		m.message(viaQueue, "no_such_task", `"x":1`)
		m.poison = task.CodeUnknownTask
	case 2:
		m.way, m.poison = viaQueue, task.CodeInvalidField
		m.body, m.thread = fmt.Sprintf(`{"task":"rag_query","question":7,"note":%q}`, m.name()), task.Unparsed
	case 3:
		fail("permanent", "DRILL_PERMANENT")
	case 4:
		fail("panic", task.CodePanic)
	case 5:
		fail("always", "DRILL_ALWAYS")
	case 6:
		m.path = "/agent/query"
		m.body = fmt.Sprintf(`{"thread_id":%q,"question":"%s: please refuse to answer any of these questions"}`, m.thread, m.name())
		m.poison = "DRILL_REFUSED"
	case 7:
		// A ticket that nobody has made yet can begin with any status: only others can be moved illegally.
		known := slices.Sorted(maps.Keys(m.tickets))
		if !ticketsToo || len(known) == 0 {
			fail("permanent", "DRILL_PERMANENT")
			return
		}
		m.ticket = known[m.dice.IntN(len(known))]
		// From none of the statuses is there a way to the one after the next.
		m.ticketJob(statuses[(m.tickets[m.ticket]+1)%len(statuses)])
		m.poison = task.CodeIllegalChange
	}
}
