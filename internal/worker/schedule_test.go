package worker_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"agentworker/internal/checkpoint"
	"agentworker/internal/task"
	"agentworker/internal/worker"
)

// schedule decides, inside a synctest bubble, which of several workers goes on at each of their calls of the table, and
// what goes wrong there. Its choices were drawn before; when they are used up nothing goes wrong any more.
type schedule struct {
	choices []choice
	table   *outside
	account *account
	types   *task.Registry
	skew    atomic.Int64 // how far the stores' clocks are ahead of the workers'

	messages []*letter
	flights  []*flight // running invocations, oldest first
	started  int

	mu      sync.Mutex
	pending []*call
	landed  []*flight
	trace   []string
}

// letter is a message of one task on its queue.
type letter struct {
	do       string
	id       task.ID
	number   int // of the message id; a redrive gives a new one
	receives int
	hands    int // invocations that hold it
	gone     bool
	dead     bool
}

func (m *letter) messageID() string { return fmt.Sprintf("m-%s-%d", m.id.ULID(), m.number) }

// flight is one invocation of a worker, for one message.
type flight struct {
	number  int
	message *letter
	dead    atomic.Bool // its process was killed: nothing that it does reaches the table any more
	attempt int         // of its claim; 0: none
	failed  bool
}

// call is one request to the table that waits for its turn.
type call struct {
	flight *flight
	op     string
	in     any
	do     func(checkpoint.API) (any, error)
	answer chan reply
}

type reply struct {
	out any
	err error
}

const (
	mostReceives = 5
	mostFlights  = 5
	leases       = 10 * time.Minute // an invocation's time
	// pause is longer than any pause between two tries of a commit, so that at every choice each worker is at a call.
	pause = 300 * time.Millisecond
)

var errNetwork = errors.New("connection reset by peer")

// run plays the schedule to its end and then, without faults, until every message is deleted or dead-lettered.
func (s *schedule) run() {
	for range 2000 {
		time.Sleep(pause)
		synctest.Wait()
		s.land()
		if len(s.choices) == 0 && len(s.flights) == 0 && !s.deliverable() {
			return
		}
		s.choose()
	}
	s.account.problem("the run does not come to an end")
}

// A choice is what happens next, and to which of those that it can happen to. The zero value lets the oldest call go on.
type choice struct {
	What  string
	Which int
}

const (
	goOn            = ""
	runIntoConflict = "conflict"
	killBefore      = "kill before"
	killAfter       = "kill after"
	loseAnswer      = "lose answer"
	sendAgain       = "send again"
	deliver         = "deliver"
	deliverTwice    = "deliver twice"
	takeOver        = "take over" // leases run out, and a message is delivered
	redrive         = "redrive"
)

// choices are drawn so that most of the calls go through.
func choices() *rapid.Generator[choice] {
	what := append(slices.Repeat([]string{goOn}, 14), slices.Repeat([]string{deliver}, 4)...)
	what = append(what, runIntoConflict, killBefore, killAfter, loseAnswer, sendAgain, deliverTwice, deliverTwice, takeOver, takeOver, redrive)
	return rapid.Custom(func(t *rapid.T) choice {
		return choice{rapid.SampledFrom(what).Draw(t, "what"), rapid.IntRange(0, 7).Draw(t, "which")}
	})
}

// choose makes the next choice come true.
func (s *schedule) choose() {
	var c choice
	if len(s.choices) > 0 {
		c, s.choices = s.choices[0], s.choices[1:]
	}
	s.mu.Lock()
	waiting := len(s.pending)
	s.mu.Unlock()
	switch {
	case c.What == takeOver:
		s.note("leases run out")
		s.skew.Add(int64(leases + time.Minute))
		s.deliver(c.Which, true)
	case c.What == redrive:
		s.redrive()
	case c.What == deliverTwice:
		s.deliver(c.Which, true)
	case c.What == deliver || waiting == 0:
		if !s.deliver(c.Which, false) && waiting == 0 && len(s.flights) > 0 {
			s.account.problem("workers are stuck")
		}
	default:
		s.release(s.take(c.Which%waiting), c.What)
	}
}

// release lets a call through to the table, or not, and gives the answer, or not.
func (s *schedule) release(c *call, what string) {
	f := c.flight
	switch what {
	case runIntoConflict:
		s.note("flight %d: %s runs into a conflict", f.number, c.op)
		c.answer <- reply{err: conflict(c.op)}
		return
	case killBefore:
		s.note("flight %d: killed before %s", f.number, c.op)
		s.kill(f, c)
		return
	}
	out, err := s.perform(c)
	switch what {
	case killAfter:
		s.note("flight %d: killed after %s: %v", f.number, c.op, err)
		s.kill(f, c)
		return
	case loseAnswer:
		s.note("flight %d: answer to %s lost: %v", f.number, c.op, err)
		c.answer <- reply{err: errNetwork}
		return
	case sendAgain:
		s.note("flight %d: %s sent again", f.number, c.op)
		if in, ok := c.in.(*dynamodb.TransactWriteItemsInput); ok {
			in.ClientRequestToken = nil // as if it came after the ten minutes for which DynamoDB knows it
		}
		out, err = s.perform(c)
	}
	s.note("flight %d: %s: %v", f.number, c.op, err)
	c.answer <- reply{out, err}
}

func (s *schedule) perform(c *call) (any, error) {
	out, err := s.table.do(c.do)
	if err == nil {
		s.account.effect(c)
	}
	return out, err
}

func conflict(op string) error {
	if op == "TransactWriteItems" {
		return &types.TransactionCanceledException{CancellationReasons: []types.CancellationReason{
			{Code: aws.String("TransactionConflict")}, {Code: aws.String("None")},
		}}
	}
	if op == "UpdateItem" {
		return &types.TransactionConflictException{}
	}
	return errNetwork
}

// kill ends the worker's process: none of its calls has an effect any more, and none of its answers counts.
func (s *schedule) kill(f *flight, c *call) {
	f.dead.Store(true)
	c.answer <- reply{err: errNetwork}
	s.mu.Lock()
	defer s.mu.Unlock()
	var others []*call
	for _, p := range s.pending {
		if p.flight == f {
			p.answer <- reply{err: errNetwork}
			continue
		}
		others = append(others, p)
	}
	s.pending = others
}

func (s *schedule) take(i int) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Two calls of one worker come in no certain order.
	slices.SortStableFunc(s.pending, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.flight.number, b.flight.number), cmp.Compare(a.op, b.op))
	})
	c := s.pending[i]
	s.pending = append(s.pending[:i:i], s.pending[i+1:]...)
	return c
}

func (s *schedule) deliverable() bool {
	for _, m := range s.messages {
		if !m.gone && !m.dead {
			return true
		}
	}
	return false
}

// deliver gives a message to a new worker; twice also one that another worker has in hand, as SQS may do.
func (s *schedule) deliver(which int, twice bool) bool {
	var fit []*letter
	for _, m := range s.messages {
		if !m.gone && !m.dead && (m.hands == 0 || twice) {
			fit = append(fit, m)
		}
	}
	if len(fit) == 0 || len(s.flights) >= mostFlights {
		return false
	}
	m := fit[which%len(fit)]
	if m.hands == 0 && m.receives >= mostReceives {
		s.note("%s is dead-lettered", m.messageID())
		m.dead = true
		return true
	}
	if len(s.choices) == 0 {
		// Nothing goes wrong any more: whoever died is forgotten by the time the message is back.
		s.skew.Add(int64(leases + time.Minute))
	}
	m.receives++
	m.hands++
	s.started++
	f := &flight{number: s.started, message: m}
	s.flights = append(s.flights, f)
	s.note("flight %d: has %s (%s), receive %d", f.number, m.messageID(), m.do, m.receives)
	go s.fly(f)
	return true
}

// fly is one invocation: a process of its own, with a store and a worker of its own.
func (s *schedule) fly(f *flight) {
	now := func() time.Time { return time.Now().Add(time.Duration(s.skew.Load())) }
	store := checkpoint.New(&gate{s, f}, s.table.name, checkpoint.Options{Now: now})
	w := worker.New(worker.Config{
		Tasks: s.types, Store: skewed{store, &s.skew},
		Queue: &queue{after: map[string][]int32{}}, Logger: slog.New(slog.DiscardHandler),
		QueueURLs: []string{queueURL}, Retries: 3, MaxReceiveCount: mostReceives, PartialBatch: true,
	})
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), storeKey{}, store), leases)
	defer cancel()
	m := message(f.message.id, f.message.do)
	m.MessageId = f.message.messageID()
	m.Attributes["ApproximateReceiveCount"] = fmt.Sprint(f.message.receives)
	out, err := invoke(ctx, w, events.SQSEvent{Records: []events.SQSMessage{m}})
	f.failed = err != nil || len(out.BatchItemFailures) > 0
	s.mu.Lock()
	defer s.mu.Unlock()
	s.landed = append(s.landed, f)
}

type storeKey struct{}

// storeOf is the store of the worker that runs a handler.
func storeOf(ctx context.Context) *checkpoint.Store { return ctx.Value(storeKey{}).(*checkpoint.Store) }

// skewed gives leases an end by the stores' clock, since the deadlines that they are made of go by the workers'.
type skewed struct {
	*checkpoint.Store
	skew *atomic.Int64
}

func (s skewed) Claim(ctx context.Context, r checkpoint.ClaimRequest) (checkpoint.Record, error) {
	r.Until = r.Until.Add(time.Duration(s.skew.Load()))
	return s.Store.Claim(ctx, r)
}

// land does with the messages of finished invocations what their answers say.
func (s *schedule) land() {
	s.mu.Lock()
	landed := s.landed
	s.landed = nil
	s.mu.Unlock()
	for _, f := range landed {
		for i, other := range s.flights {
			if other == f {
				s.flights = append(s.flights[:i:i], s.flights[i+1:]...)
				break
			}
		}
		f.message.hands--
		if f.dead.Load() || f.failed {
			continue
		}
		s.note("flight %d: acknowledges", f.number)
		s.account.acknowledged(f.message.id)
		f.message.gone = true
	}
}

// redrive moves what is dead-lettered back, under new message ids.
func (s *schedule) redrive() {
	for _, m := range s.messages {
		if m.dead && m.hands == 0 {
			s.note("%s is moved back", m.messageID())
			m.number, m.receives, m.dead = m.number+1, 0, false
		}
	}
}

func (s *schedule) note(format string, args ...any) {
	s.trace = append(s.trace, fmt.Sprintf(format, args...))
}

// gate is a DynamoDB client of which each call waits until the schedule lets it through.
type gate struct {
	s *schedule
	f *flight
}

func pass[In, Out any](ctx context.Context, g *gate, op string, in In, do func(checkpoint.API, context.Context, In, ...func(*dynamodb.Options)) (Out, error)) (Out, error) {
	var none Out
	if g.f.dead.Load() {
		return none, errNetwork
	}
	c := &call{flight: g.f, op: op, in: in, answer: make(chan reply, 1)}
	c.do = func(api checkpoint.API) (any, error) { return do(api, context.Background(), in) }
	g.s.mu.Lock()
	g.s.pending = append(g.s.pending, c)
	g.s.mu.Unlock()
	select {
	case a := <-c.answer:
		if a.err != nil {
			return none, a.err
		}
		return a.out.(Out), nil
	case <-ctx.Done():
		g.s.mu.Lock()
		defer g.s.mu.Unlock()
		for i, p := range g.s.pending {
			if p == c {
				g.s.pending = append(g.s.pending[:i:i], g.s.pending[i+1:]...)
				break
			}
		}
		return none, ctx.Err()
	}
}

func (g *gate) GetItem(ctx context.Context, in *dynamodb.GetItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	return pass(ctx, g, "GetItem", in, checkpoint.API.GetItem)
}

func (g *gate) PutItem(ctx context.Context, in *dynamodb.PutItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	return pass(ctx, g, "PutItem", in, checkpoint.API.PutItem)
}

func (g *gate) Scan(ctx context.Context, in *dynamodb.ScanInput, _ ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	return pass(ctx, g, "Scan", in, checkpoint.API.Scan)
}

func (g *gate) Query(ctx context.Context, in *dynamodb.QueryInput, _ ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return pass(ctx, g, "Query", in, checkpoint.API.Query)
}

func (g *gate) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, _ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	return pass(ctx, g, "UpdateItem", in, checkpoint.API.UpdateItem)
}

func (g *gate) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, _ ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	return pass(ctx, g, "TransactWriteItems", in, checkpoint.API.TransactWriteItems)
}
