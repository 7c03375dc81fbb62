package worker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/agent"
	"agentworker/internal/agent/chat"
	"agentworker/internal/agent/model"
	"agentworker/internal/agent/model/modeltest"
	"agentworker/internal/agent/retrieval"
	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/dynamodb/dynamodbtest"
	"agentworker/internal/task"
	"agentworker/internal/worker"
)

// providers are the models under test: both ask the same server, each in its own protocol.
func providers(server *modeltest.Server) map[string]chat.Model {
	return map[string]chat.Model{
		"openai": model.NewOpenAI(model.OpenAIConfig{Model: "m-1", BaseURL: server.OpenAIURL()}),
		"bedrock": model.NewBedrock(model.BedrockConfig{Model: "m-1", AWS: aws.Config{
			Region: "us-east-1", BaseEndpoint: aws.String(server.BedrockURL()), Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
		}}),
	}
}

// The script of a run of five model calls and four tool calls.
var nineSteps = []string{
	"model-1", "tool-1-1-search_documents", "model-2", "tool-2-1-update_ticket", "model-3", "tool-3-1-get_ticket", "model-4", "tool-4-1-update_ticket", "model-5",
}

func fiveTurns() []modeltest.Reply {
	use := func(i int, name, input string) modeltest.Reply {
		return modeltest.CallTools(chat.ToolCall{ID: fmt.Sprint("id-", i), Name: name, Input: jsontext.Value(input)}).Using(10, 1)
	}
	return []modeltest.Reply{
		use(1, "search_documents", `{"query":"dead-letter queue"}`),
		use(2, "update_ticket", `{"ticket_id":"TK-1","status":"open"}`),
		use(3, "get_ticket", `{"ticket_id":"TK-1"}`),
		use(4, "update_ticket", `{"ticket_id":"TK-1","status":"in_progress"}`),
		modeltest.Say("Done [dead-letter-queues#1].").Using(10, 1),
	}
}

// agents is a fixture whose workers run agent tasks, and can be killed.
type agents struct {
	*fixture
	skew atomic.Int64 // how far the table's clock is ahead

	mu    sync.Mutex
	tools map[string]int // calls by effect key
	// onTool, when set, is called in every tool call before it does anything.
	onTool func(key string)
}

func setUpAgents(t *testing.T, m chat.Model, change ...func(*worker.Config)) *agents {
	t.Helper()
	a := &agents{tools: map[string]int{}}
	client := dynamodbtest.New(t)
	store := checkpoint.New(client, dynamodbtest.Table(t, client), checkpoint.Options{
		Now: func() time.Time { return time.Now().Add(time.Duration(a.skew.Load())) },
	})
	c := agent.Config{Retriever: retrieval.Builtin(), Tickets: store, Chat: m}
	tools := agent.BuiltinTools(c)
	for i, tool := range tools {
		tools[i].Run = func(ctx context.Context, call agent.ToolCall) (any, error) {
			a.mu.Lock()
			a.tools[call.Effects.Key()]++
			on := a.onTool
			a.mu.Unlock()
			if on != nil {
				on(call.Effects.Key())
			}
			return tool.Run(ctx, call)
		}
	}
	var err error
	if c.Tools, err = agent.NewToolbox(tools...); err != nil {
		t.Fatal(err)
	}
	types, err := task.NewRegistry(agent.Types(c)...)
	if err != nil {
		t.Fatal(err)
	}
	a.fixture = setUp(t, nil, append(change, func(c *worker.Config) { c.Store, c.Tasks = store, types })...)
	a.store = store
	return a
}

func newAgentTask() (task.ID, events.SQSMessage) {
	id, m := newTask("")
	m.Body = fmt.Sprintf(`{"task":"agent_run","task_id":%q,"question":"What is a dead-letter queue? And start on TK-1."}`, id)
	return id, m
}

// handleMortal handles a message in a worker that dies at its nth commit, before or after that takes effect.
func (a *agents) handleMortal(t *testing.T, n int, after bool, m events.SQSMessage) {
	t.Helper()
	c := a.Config
	c.Store = &mortal{Store: a.store, left: n, after: after}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := invoke(ctx, worker.New(c), eventOf(m)); err != nil {
		t.Fatal(err)
	}
	a.skew.Add(int64(2 * time.Minute)) // its lease runs out
}

// mortal is a worker's way to the table: once it is dead nothing gets through, not even how the attempt ended.
type mortal struct {
	worker.Store
	left  int
	after bool
}

var errKilled = errors.New("killed")

func (m *mortal) Commit(ctx context.Context, c checkpoint.Commit) (checkpoint.Committed, error) {
	m.left--
	if m.left > 0 {
		return m.Store.Commit(ctx, c)
	}
	if m.left == 0 && m.after {
		if _, err := m.Store.Commit(ctx, c); err != nil {
			return checkpoint.Committed{}, err
		}
	}
	return checkpoint.Committed{}, errKilled
}

func (m *mortal) End(ctx context.Context, r checkpoint.Record, e checkpoint.End) error {
	if m.left <= 0 {
		return errKilled
	}
	return m.Store.End(ctx, r, e)
}

// wantCalls checks how often each of the run's nine calls was made: once, but for those in twice.
func (a *agents) wantCalls(t *testing.T, id task.ID, server *modeltest.Server, twice ...string) {
	t.Helper()
	want := map[string]int{}
	for _, step := range nineSteps {
		want[task.EffectKey(id, step)] = 1
	}
	for _, step := range twice {
		want[task.EffectKey(id, step)]++
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	got := maps.Clone(a.tools)
	maps.Copy(got, server.CallsByKey())
	if !maps.Equal(got, want) {
		t.Errorf("calls by effect key:\n got %v\nwant %v", got, want)
	}
}

// wantDone checks the run's outcome.
func (a *agents) wantDone(t *testing.T, id task.ID) {
	t.Helper()
	rec := a.wantStatus(t, id, checkpoint.Succeeded, "")
	var steps []string
	for _, s := range rec.Steps {
		steps = append(steps, s.Name)
	}
	if !slices.Equal(steps, nineSteps) {
		t.Errorf("steps: got %q, want %q", steps, nineSteps)
	}
	if ticket, err := a.store.Ticket(t.Context(), "TK-1"); err != nil || ticket.Version != 2 || ticket.Status != "in_progress" {
		t.Errorf("ticket: got %+v (%v), want version 2, in_progress: two changes", ticket, err)
	}
	want := `"answer":"Done [dead-letter-queues#1].","citations":[{"document":"dead-letter-queues","passage":1,`
	if got := a.result(t, id); !strings.Contains(got, want) || !strings.Contains(got, `"steps":9,"tokens":{"input":50,"output":5}`) {
		t.Errorf("result: got %s, want %s…", got, want)
	}
	if want := (task.Tokens{Input: 50, Output: 5}); rec.Tokens != want {
		t.Errorf("tokens: got %+v, want %+v", rec.Tokens, want)
	}
}

// A worker that is killed between two steps costs no call; one that is killed between a call and its checkpoint costs
// that call once more, under the same effect key.
//
// Case: side effect twice (a tool is done, the process is killed before the commit)
func TestARunSurvivesAKillAnywhere(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"openai", "bedrock"} {
		for i, step := range nineSteps {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/committed=%t", provider, step, after), func(t *testing.T) {
					t.Parallel()
					server := modeltest.Start(t)
					server.Converse(fiveTurns()...)
					a := setUpAgents(t, providers(server)[provider])
					id, m := newAgentTask()
					a.handleMortal(t, i+1, after, m)
					wantFailed(t, a.handle(t, again(m)))
					a.wantDone(t, id)
					if after {
						a.wantCalls(t, id, server)
					} else {
						a.wantCalls(t, id, server, step)
					}
				})
			}
		}
	}
}

func TestARunSurvivesAKillAtEveryStep(t *testing.T) {
	t.Parallel()
	server := modeltest.Start(t)
	server.Converse(fiveTurns()...)
	a := setUpAgents(t, providers(server)["openai"], func(c *worker.Config) { c.Retries, c.MaxReceiveCount = 100, 100 })
	id, m := newAgentTask()
	for range nineSteps {
		a.handleMortal(t, 1, false, m)
		m = again(m)
		a.handleMortal(t, 1, true, m)
		m = again(m)
	}
	wantFailed(t, a.handle(t, m))
	a.wantDone(t, id)
	a.wantCalls(t, id, server, nineSteps...)
}

// A worker whose lease has run out in the middle of a tool call stops at its commit; the other one has made that call too, under the
// same key, and every later one alone.
func TestARunThatIsTakenOverGoesOnOnce(t *testing.T) {
	t.Parallel()
	server := modeltest.Start(t)
	server.Converse(fiveTurns()...)
	a := setUpAgents(t, providers(server)["openai"])
	id, m := newAgentTask()
	var begun atomic.Bool
	a.onTool = func(key string) {
		if key != task.EffectKey(id, nineSteps[3]) || begun.Swap(true) {
			return
		}
		a.skew.Add(int64(2 * time.Minute))
		second := again(m)
		second.ReceiptHandle = "r-second"
		wantFailed(t, a.handle(t, second))
	}
	wantFailed(t, a.handle(t, m), m)
	a.wantDone(t, id)
	a.wantCalls(t, id, server, nineSteps[3])
}

// Whatever goes wrong at the model's end, the call is made again under its key at the next attempt, when the service says, and no other.
func TestAModelThatFailsIsAskedAgain(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"openai", "bedrock"} {
		for name, tt := range map[string]struct {
			fault     modeltest.Reply
			low, high int32
		}{
			"throttled": {modeltest.Throttle(7 * time.Second), 7, 7}, "cut": {modeltest.Cut(), 2, 3}, "dropped": {modeltest.Drop(), 2, 3},
			"malformed": {modeltest.Malformed(), 2, 3}, "empty": {modeltest.Empty(), 2, 3}, "error": {modeltest.Fail(500, "internal"), 2, 3},
		} {
			t.Run(provider+"/"+name, func(t *testing.T) {
				t.Parallel()
				server := modeltest.Start(t)
				server.Converse(fiveTurns()...)
				a := setUpAgents(t, providers(server)[provider])
				id, m := newAgentTask()
				a.onTool = func(key string) {
					if key == task.EffectKey(id, nineSteps[3]) {
						server.Fault(tt.fault)
					}
				}
				wantFailed(t, a.handle(t, m), m)
				if rec := a.record(t, id); rec.Status != checkpoint.Retrying || rec.Step != "model-3" || len(rec.Steps) != 4 {
					t.Errorf("after the fault the task is %s at %s with %d steps, want it retrying at model-3 with 4", rec.Status, rec.Step, len(rec.Steps))
				}
				a.queue.wantAfter(t, m, tt.low, tt.high)
				wantFailed(t, a.handle(t, again(m)))
				a.wantDone(t, id)
				a.wantCalls(t, id, server, "model-3")
			})
		}
	}
}

// What a model must not call is told to it in both protocols, in a form that the service accepts.
func TestWrongCallsOverTheWire(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"openai", "bedrock"} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			server := modeltest.Start(t)
			server.Converse(
				modeltest.CallTools(
					chat.ToolCall{ID: "id-1", Name: "drop table; 删除", Input: jsontext.Value(`{}`)},
					chat.ToolCall{ID: "id-2", Name: "get_ticket", Input: jsontext.Value(`{"ticket":"TK-1"}`)}),
				modeltest.Say("I cannot do that."))
			a := setUpAgents(t, providers(server)[provider])
			id, m := newAgentTask()
			wantFailed(t, a.handle(t, m))
			a.wantStatus(t, id, checkpoint.Succeeded, "")
			calls := server.Calls()
			heard := calls[len(calls)-1].Request.Messages
			if len(calls) != 2 || !strings.Contains(heard[2].Text, "no tool of this name") || !strings.Contains(heard[3].Text, "does not fit the tool's schema") {
				t.Errorf("in %d calls the model heard %+v, want both faults", len(calls), heard)
			}
			if len(a.tools) != 0 {
				t.Errorf("tools were called: %v", a.tools)
			}
		})
	}
}

// A run that takes longer than an invocation goes on over several, calls nothing twice, and none of them is a failed try.
func TestALongAgentRunContinues(t *testing.T) {
	t.Parallel()
	m := &slowModel{}
	var calls int
	note := agent.Tool{Name: "note", Schema: jsontext.Value(`{"type":"object"}`), Run: func(context.Context, agent.ToolCall) (any, error) {
		calls++
		return "noted", nil
	}}
	tools, err := agent.NewToolbox(note)
	if err != nil {
		t.Fatal(err)
	}
	types, err := task.NewRegistry(agent.Types(agent.Config{Chat: m, Tools: tools})...)
	if err != nil {
		t.Fatal(err)
	}
	inBubble(t, nil, func(t *testing.T, f *fixture) {
		t.Helper()
		id, msg := newAgentTask()
		for range 2 {
			wantFailed(t, f.handle(t, msg), msg)
			f.wantStatus(t, id, checkpoint.Queued, "")
			f.queue.wantAfter(t, msg, 1, 1)
			msg = again(msg)
		}
		wantFailed(t, f.handle(t, msg))
		rec := f.wantStatus(t, id, checkpoint.Succeeded, "")
		if m.calls != 5 || calls != 4 || len(rec.Steps) != 9 || len(rec.Attempts) != 3 {
			t.Errorf("got %d model and %d tool calls in %d attempts, want 5 and 4 in 3", m.calls, calls, len(rec.Attempts))
		}
	}, func(c *worker.Config) { c.Tasks, c.Retries = types, 0 })
}

// slowModel thinks for 20 s, and answers at its fifth turn.
type slowModel struct{ calls int }

func (m *slowModel) Complete(ctx context.Context, r chat.Request) (chat.Response, error) {
	m.calls++
	if err := sleep(ctx, 20*time.Second); err != nil {
		return chat.Response{}, err
	}
	said := 0
	for _, msg := range r.Messages {
		if msg.Role == chat.RoleAssistant {
			said++
		}
	}
	if said == 4 {
		return chat.Response{Text: "Done."}, nil
	}
	return chat.Response{ToolCalls: []chat.ToolCall{{ID: fmt.Sprint("id-", said), Name: "note", Input: jsontext.Value(`{}`)}}}, nil
}
