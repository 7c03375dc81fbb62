package worker_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"pgregory.net/rapid"

	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/dynamodb/dynamodbtest"
	"agentworker/internal/task"
)

// TestAnyInterleavingKeepsThePromises lets up to five workers at a time get into each other's way at every single call of
// the table, with lost answers, repeated requests, conflicts, killed workers, leases that run out too early, messages
// delivered twice and messages moved back out of the dead-letter queue, and keeps account of what took effect.
//
// Case: idempotency lease (a worker dies after the claim)
// Case: concurrent updates of one record
// Case: transaction conflict not retried
// Case: side effect twice (a worker dies between a step and its checkpoint)
func TestAnyInterleavingKeepsThePromises(t *testing.T) {
	t.Parallel()
	client := dynamodbtest.New(t)
	table := newOutside(t, client, dynamodbtest.Table(t, client))
	begun, most, failed := 0, runsByDefault(), false
	rapid.Check(t, func(rt *rapid.T) {
		begun++
		if begun > most && !failed {
			return
		}
		drawn := rapid.SliceOfN(choices(), 30, 150).Draw(rt, "choices")
		tasks := rapid.SliceOfN(rapid.SampledFrom([]string{"steps", "steps", "ticket", "ticket", "poison"}), 1, 4).Draw(rt, "tasks")
		threads := rapid.IntRange(1, 2).Draw(rt, "threads")
		a := &account{
			run: begun, attempts: map[task.ID]int{}, committed: map[string]uint64{}, records: map[task.ID]checkpoint.Record{}, versions: map[string]int64{},
		}
		s := &schedule{choices: drawn, table: table, account: a}
		synctest.Test(t, func(t *testing.T) {
			a.now = func() time.Time { return time.Now().Add(time.Duration(s.skew.Load())) }
			a.store = checkpoint.New(table, table.name, checkpoint.Options{Now: a.now})
			s.types = a.registry(t)
			for i, do := range tasks {
				id := task.NewID(a.thread(i%threads), time.Now())
				s.messages = append(s.messages, &letter{id: id, do: do})
				if i%2 == 0 { // the others were sent by somebody else
					if _, _, err := a.store.Create(context.Background(), task.Message{ID: id, Thread: id.Thread(), Task: "test"}, time.Now()); err != nil {
						t.Fatal(err)
					}
				}
			}
			s.run()
			s.skew.Add(int64(leases + time.Minute)) // the alarm leaves alone what a worker may still be at, and comes again
			a.settle(s.messages)
		})
		if len(a.problems) > 0 {
			failed = true
			rt.Fatalf("%s\nafter\n%s", strings.Join(a.problems, "\n"), strings.Join(s.trace, "\n"))
		}
	})
}

// runsByDefault is less than rapid's own hundred, which take too long for every run of the tests; -rapid.checks with another
// number is heeded.
func runsByDefault() int {
	if f := flag.Lookup("rapid.checks"); f.Value.String() != f.DefValue {
		return math.MaxInt
	}
	return 40
}

// account knows what took effect in one run.
type account struct {
	run       int
	store     *checkpoint.Store
	now       func() time.Time              // by the stores' clocks
	attempts  map[task.ID]int               // claims that took effect
	committed map[string]uint64             // by task and step: the checkpoint's number
	records   map[task.ID]checkpoint.Record // as they were last seen
	versions  map[string]int64              // of tickets
	problems  []string
}

func (a *account) problem(format string, args ...any) {
	a.problems = append(a.problems, fmt.Sprintf(format, args...))
}

func (a *account) thread(i int) string { return fmt.Sprintf("th-%d-%d", a.run, i) }

// registry holds a type whose tasks have three steps, of which the second may change a ticket.
func (a *account) registry(t *testing.T) *task.Registry {
	t.Helper()
	do := script{
		"steps": func(ctx context.Context, run task.Run) (string, error) { return a.handle(ctx, run, nil) },
		"poison": func(ctx context.Context, run task.Run) (string, error) {
			return a.handle(ctx, run, errors.New("poison"))
		},
		"ticket": func(ctx context.Context, run task.Run) (string, error) {
			if err := a.step(ctx, run, "first"); err != nil {
				return "", err
			}
			id := fmt.Sprintf("TK-%d", a.run)
			_, err := task.LastStep(ctx, run, "change", func(ctx context.Context, effects *task.Effects) (string, error) {
				a.ran(run, "change")
				have, err := storeOf(ctx).Ticket(ctx, id)
				if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
					return "", err
				}
				effects.SetTicket(task.Ticket{ID: id, Status: "open", Version: have.Version + 1, UpdatedAt: time.Now()})
				return "changed", nil
			})
			return "changed", err
		},
	}
	r, err := task.NewRegistry(testType(do))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (a *account) handle(ctx context.Context, run task.Run, fault error) (string, error) {
	for _, name := range []string{"first", "second"} {
		if err := a.step(ctx, run, name); err != nil {
			return "", err
		}
	}
	return "done", task.Permanent(fault)
}

func (a *account) step(ctx context.Context, run task.Run, name string) error {
	_, err := task.Step(ctx, run, name, func(context.Context, *task.Effects) (string, error) {
		a.ran(run, name)
		return string(run.ID()) + "/" + name, nil
	})
	return err
}

// ran is told that a step's function is called. Only a worker whose lease ran out too early may call that of a committed
// step: it cannot know, and cannot commit it.
func (a *account) ran(run task.Run, step string) {
	if _, done := a.committed[string(run.ID())+"/"+step]; done && run.Attempt() == a.attempts[run.ID()] {
		a.problem("attempt %d runs step %s again, which is committed", run.Attempt(), step)
	}
}

// effect is told of every call that the table has accepted.
func (a *account) effect(c *call) {
	id := c.flight.message.id
	switch c.op {
	case "UpdateItem":
		before := a.records[id]
		now := a.look(id)
		if n := len(now.Attempts); n > a.attempts[id] {
			if n != a.attempts[id]+1 {
				a.problem("one claim made %d attempts of %d", n, a.attempts[id])
			}
			if before.Live(a.now()) {
				a.problem("attempt %d begins while the lease of attempt %d runs", n, n-1)
			}
			a.attempts[id], c.flight.attempt = n, n
		} else if c.flight.attempt != n {
			a.problem("flight %d, attempt %d, ends attempt %d", c.flight.number, c.flight.attempt, n)
		}
	case "TransactWriteItems":
		if c.flight.attempt != a.attempts[id] {
			a.problem("flight %d commits under attempt %d while %d is the newest", c.flight.number, c.flight.attempt, a.attempts[id])
		}
		for _, w := range c.in.(*dynamodb.TransactWriteItemsInput).TransactItems {
			if w.Put != nil {
				var item struct {
					PK      string `dynamodbav:"pk"`
					SK      string `dynamodbav:"sk"`
					Step    string `dynamodbav:"step"`
					Version int64  `dynamodbav:"version"`
				}
				if err := attributevalue.UnmarshalMap(w.Put.Item, &item); err != nil {
					a.problem("item: %v", err)
				}
				a.put(id, item.PK, item.SK, item.Step, item.Version)
			}
		}
		a.look(id)
	}
}

func (a *account) put(id task.ID, pk, sk, step string, version int64) {
	switch {
	case strings.HasPrefix(pk, "ticket#"):
		if version != a.versions[pk]+1 {
			a.problem("ticket goes from version %d to %d", a.versions[pk], version)
		}
		a.versions[pk] = version
	case strings.HasPrefix(sk, "checkpoint#"):
		key := string(id) + "/" + step
		if n, done := a.committed[key]; done {
			a.problem("step %s is committed twice, first as %d, now at %s", key, n, sk)
		}
		if _, err := fmt.Sscanf(strings.TrimPrefix(sk, "checkpoint#"), "%d", new(uint64)); err != nil {
			a.problem("sort key %s: %v", sk, err)
		}
		a.committed[key] = uint64(len(a.committed) + 1)
	}
}

// look reads a task's record and checks where it has come from.
func (a *account) look(id task.ID) checkpoint.Record {
	now, err := a.store.Record(context.Background(), id)
	if err != nil {
		a.problem("record of %s: %v", id, err)
		return now
	}
	if now.Error != nil && now.Error.Code == task.CodeStepsChanged {
		a.problem("task %s: %s", id, now.Error.Message)
	}
	before, known := a.records[id]
	a.records[id] = now
	if !known {
		return now
	}
	switch {
	case before.Status == checkpoint.Succeeded && (now.Status != checkpoint.Succeeded || now.ResultN != before.ResultN):
		a.problem("task %s goes from succeeded to %s", id, now.Status)
	case before.Status == checkpoint.Failed && now.Status != checkpoint.Failed && now.MessageID == before.MessageID:
		a.problem("task %s goes from failed to %s under the same message", id, now.Status)
	case now.Lease.Fence < before.Lease.Fence, len(now.Steps) < len(before.Steps), len(now.Attempts) < len(before.Attempts):
		a.problem("task %s goes back from %+v to %+v", id, before, now)
	}
	return now
}

// acknowledged is told that a message was deleted because its worker said so.
func (a *account) acknowledged(id task.ID) {
	if rec := a.look(id); rec.Status != checkpoint.Succeeded {
		a.problem("the message of task %s is acknowledged, and the task is %s", id, rec.Status)
	}
}

// settle goes through all that is left in the table.
func (a *account) settle(messages []*letter) {
	ctx := context.Background()
	threads := map[string][]checkpoint.Checkpoint{}
	for _, m := range messages {
		rec := a.look(m.id)
		if m.dead {
			var err error
			rec, err = a.store.DeadLettered(ctx, checkpoint.DeadLetter{ID: m.id, Task: "test", MessageID: m.messageID(), SentAt: time.Now()})
			if err != nil || rec.Status != checkpoint.Failed && rec.Status != checkpoint.Succeeded {
				a.problem("task %s is dead-lettered and %s (%v)", m.id, rec.Status, err)
			}
		} else if rec.Status != checkpoint.Succeeded {
			a.problem("task %s is lost: its message is gone and it is %s", m.id, rec.Status)
		}
		if rec.Status == checkpoint.Succeeded && m.do == "poison" {
			a.problem("task %s succeeded with a handler that fails", m.id)
		}
		if len(rec.Attempts) != a.attempts[m.id] {
			a.problem("task %s has %d attempts and was claimed %d times", m.id, len(rec.Attempts), a.attempts[m.id])
		}
		if threads[m.id.Thread()] == nil {
			list, err := a.store.Latest(ctx, m.id.Thread(), 0, 1000)
			if err != nil {
				a.problem("thread %s: %v", m.id.Thread(), err)
			}
			slices.Reverse(list)
			threads[m.id.Thread()] = list
		}
		var names []string
		for _, st := range rec.Steps {
			names = append(names, st.Name)
			if list := threads[m.id.Thread()]; st.N < 1 || st.N > uint64(len(list)) || list[st.N-1].TaskID != m.id || list[st.N-1].Step != st.Name {
				a.problem("task %s says that step %s is checkpoint %d, which it is not", m.id, st.Name, st.N)
			}
		}
		whole := map[string][]string{"steps": {"first", "second", "result"}, "ticket": {"first", "change"}}[m.do]
		if rec.Status == checkpoint.Succeeded && !slices.Equal(names, whole) {
			a.problem("task %s succeeded with the steps %v, want %v", m.id, names, whole)
		}
	}
	a.settleThreads(threads)
}

func (a *account) settleThreads(threads map[string][]checkpoint.Checkpoint) {
	total := 0
	for thread, list := range threads {
		total += len(list)
		var newest uint64
		results := map[task.ID]int{}
		for i, cp := range list {
			if cp.N != uint64(i+1) {
				a.problem("thread %s has checkpoint %d at place %d", thread, cp.N, i+1)
			}
			if cp.Last {
				newest = cp.N
				results[cp.TaskID]++
			}
		}
		for id, n := range results {
			if n != 1 {
				a.problem("task %s has %d results", id, n)
			}
		}
		res, err := a.store.Result(context.Background(), thread)
		if newest == 0 && !errors.Is(err, checkpoint.ErrNotFound) || newest > 0 && (err != nil || res.N != newest) {
			a.problem("the newest result of thread %s is %d (%v), want %d", thread, res.N, err, newest)
		}
	}
	if total != len(a.committed) {
		a.problem("%d checkpoints are left of %d that were committed", total, len(a.committed))
	}
}
