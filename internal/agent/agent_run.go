package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/agent/chat"
	"agentworker/internal/task"
)

// AgentRun is the name of the task type in which a model works on a question with tools until it has an answer.
const AgentRun = "agent_run"

// CodeStepLimit is the code of a run that has no answer after the steps that it may take.
const CodeStepLimit = "STEP_LIMIT"

// The bounds of one run.
const (
	MaxAgentSteps     = 30      // model and tool calls together
	DefaultAgentSteps = 20      // where the task does not say
	DefaultTokenLimit = 200_000 // input and output together, over all steps and attempts
	maxAnswerTokens   = 4_096   // of one model call
)

// RunInput is the input of an [AgentRun] task.
type RunInput struct {
	Question string `json:"question"`
	MaxSteps *int   `json:"max_steps"` // 1 to [MaxAgentSteps]; nil: [DefaultAgentSteps]
}

// RunResult is the result of an [AgentRun] task.
type RunResult struct {
	Question  string      `json:"question"`
	Answer    string      `json:"answer"`
	Citations []Citation  `json:"citations"` // of the passages that the answer refers to
	Steps     int         `json:"steps"`     // model and tool calls
	Tokens    task.Tokens `json:"tokens"`
	Model     string      `json:"model"`
}

type agentRun struct {
	model      chat.Model
	tools      *Toolbox
	tokenLimit int64
}

func (a agentRun) definition() task.Definition[RunInput, RunResult] {
	return task.Definition[RunInput, RunResult]{Name: AgentRun, Check: checkRunInput, Run: a.run}
}

// run asks the model, makes the calls that it wants, and tells it what they gave, until it answers. Each model call and each
// tool call is a step: whatever kills the worker, what is finished is not paid for again.
func (a agentRun) run(ctx context.Context, run task.Run, in RunInput) (RunResult, error) {
	d := newDialogue(a, run, in)
	for turn := 1; ; turn++ {
		calls, result, err := d.ask(ctx, turn)
		if err != nil {
			return RunResult{}, err
		}
		if result != nil {
			return *result, nil
		}
		for i, call := range calls {
			if err := d.use(ctx, fmt.Sprintf("tool-%d-%d-%s", turn, i+1, stepName(call.Name)), call); err != nil {
				return RunResult{}, err
			}
		}
	}
}

// dialogue is a run between the model and its tools, as far as it has come.
type dialogue struct {
	agentRun
	task     task.Run
	question string
	maxSteps int

	steps    int
	turns    []Turn         // of the thread before this run
	log      []chat.Message // since the question
	passages []Passage      // that searches have given
}

func newDialogue(a agentRun, run task.Run, in RunInput) *dialogue {
	d := &dialogue{agentRun: a, task: run, question: in.Question, maxSteps: DefaultAgentSteps, turns: Conversation(run.Turns())}
	if in.MaxSteps != nil {
		d.maxSteps = *in.MaxSteps
	}
	return d
}

// said is the output of a model step that calls tools. That of the last model step is a [RunResult].
type said struct {
	Text  string     `json:"text,omitempty"`
	Calls []toolCall `json:"tool_calls"`
	// Turns are what the thread's context was in the first step: later attempts, for which the run's own steps have
	// pushed it out of sight, go on with the same.
	Turns []Turn `json:"turns,omitempty"`
}

// toolCall is a [chat.ToolCall] whose input may be no JSON.
type toolCall struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Input string `json:"input"`
}

// ask makes the model call of a turn: it gives the tool calls that the model wants, or else the result.
func (d *dialogue) ask(ctx context.Context, turn int) ([]toolCall, *RunResult, error) {
	if err := d.countStep(); err != nil {
		return nil, nil, err
	}
	raw, err := task.Step(ctx, d.task, fmt.Sprintf("model-%d", turn), func(ctx context.Context, effects *task.Effects) (jsontext.Value, error) {
		return d.complete(ctx, turn, effects)
	})
	if err != nil {
		return nil, nil, err
	}
	var s said
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, nil, task.Failf(task.CodeStepsChanged, "model call %d no longer fits: %w", turn, err)
	}
	if len(s.Calls) == 0 {
		var result RunResult
		err := json.Unmarshal(raw, &result)
		return nil, &result, err
	}
	if turn == 1 {
		d.turns = s.Turns
	}
	d.log = append(d.log, s.message())
	return s.Calls, nil, nil
}

// complete is a model step.
func (d *dialogue) complete(ctx context.Context, turn int, effects *task.Effects) (jsontext.Value, error) {
	used := d.task.Tokens()
	left := d.tokenLimit - used.Total()
	if left <= 0 {
		return nil, task.Failf(task.CodeTokenLimit, "the task has used %d tokens, its limit is %d", used.Total(), d.tokenLimit)
	}
	response, err := d.model.Complete(ctx, chat.Request{
		System: instructions, Messages: d.messages(), Tools: d.tools.offered(),
		MaxTokens: int(min(left, maxAnswerTokens)), EffectKey: effects.Key(),
	})
	switch {
	case err != nil && left < maxAnswerTokens && task.FailureOf(err).Code == chat.CodeCut:
		return nil, task.Failf(task.CodeTokenLimit, "the task has used %d tokens, its limit is %d, and the %d that are left were too few for an answer", used.Total(), d.tokenLimit, left)
	case err != nil:
		return nil, fmt.Errorf("model call %d: %w", turn, err)
	}
	effects.UseTokens(response.Usage.InputTokens, response.Usage.OutputTokens)
	text := strings.ToValidUTF8(response.Text, "\uFFFD")
	if len(response.ToolCalls) > 0 {
		s := said{Text: text, Calls: keep(turn, response.ToolCalls)}
		if turn == 1 {
			s.Turns = d.turns
		}
		return encode(s)
	}
	if strings.TrimSpace(text) == "" {
		return nil, fmt.Errorf("model call %d gave neither an answer nor a tool call", turn)
	}
	if response.Stop == chat.StopLength {
		text += " …"
	}
	effects.Finish()
	return encode(RunResult{
		Question: d.question, Answer: text, Citations: citations(text, d.passages),
		Steps: d.steps, Tokens: used.Plus(effects.Tokens()), Model: response.Model,
	})
}

// toolOutput is the output of a tool step: what the tool gave, or what was wrong with the call.
type toolOutput struct {
	Content jsontext.Value `json:"content,omitempty"`
	Error   string         `json:"error,omitempty"`
}

// use makes one tool call, and takes down what it gave.
func (d *dialogue) use(ctx context.Context, step string, call toolCall) error {
	if err := d.countStep(); err != nil {
		return err
	}
	out, err := task.Step(ctx, d.task, step, func(ctx context.Context, effects *task.Effects) (toolOutput, error) {
		// Effects of its own: a call that ends in an error changes nothing.
		own := task.NewEffects(effects.Key())
		content, err := d.tools.call(ctx, call.Name, ToolCall{Input: jsontext.Value(call.Input), Effects: own})
		effects.UseTokens(int(own.Tokens().Input), int(own.Tokens().Output))
		switch {
		case task.IsPermanent(err):
			return toolOutput{Error: task.FailureOf(err).Message}, nil
		case err != nil:
			return toolOutput{}, fmt.Errorf("tool %s: %w", call.Name, err)
		}
		if t := own.Ticket(); t != nil {
			effects.SetTicket(*t)
		}
		return toolOutput{Content: content}, nil
	})
	if err != nil {
		return err
	}
	d.hear(call, out)
	return nil
}

// hear adds a tool's answer to the dialogue.
func (d *dialogue) hear(call toolCall, out toolOutput) {
	m := chat.Message{Role: chat.RoleTool, ToolCallID: call.ID, Text: string(out.Content)}
	if out.Error != "" {
		m.Text, m.ToolError = out.Error, true
	}
	d.log = append(d.log, m)
	var f found
	if call.Name == ToolSearchDocuments && out.Error == "" && json.Unmarshal(out.Content, &f) == nil {
		for _, p := range f.Passages {
			d.passages = append(d.passages, p.Passage)
		}
	}
}

// countStep counts a step before it is begun or read back.
func (d *dialogue) countStep() error {
	if d.steps == d.maxSteps {
		return task.Failf(CodeStepLimit, "no answer after %d steps (model and tool calls), which are all that the task may take", d.steps)
	}
	d.steps++
	return nil
}

func checkRunInput(in RunInput) task.FieldErrors {
	errs := checkQuestion(Question{Question: in.Question})
	if n := in.MaxSteps; n != nil && (*n < 1 || *n > MaxAgentSteps) {
		errs = append(errs, task.FieldError{Field: "max_steps", Problem: fmt.Sprintf("must be a whole number from 1 to %d", MaxAgentSteps)})
	}
	return errs
}
