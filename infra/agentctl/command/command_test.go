package command_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentworker/infra/agentctl/command"
	"agentworker/internal/emulator/cloudformation"
	"agentworker/internal/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stack is a local one whose API answers as it is told to; the process's environment leads to it.
func stack(t *testing.T, api http.HandlerFunc) {
	t.Helper()
	stacks := cloudformation.New(cloudformation.Config{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/agent/") {
			api(w, r)
			return
		}
		stacks.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	var outputs []cloudformation.Output
	for _, key := range []string{
		topology.OutputTableName, topology.OutputTopicARN, topology.OutputQueueURL, topology.OutputDeadLetterURL,
		topology.OutputOrderedQueueURL, topology.OutputOrderedDeadLetterURL,
	} {
		outputs = append(outputs, cloudformation.Output{Key: key, Value: "x"})
	}
	outputs = append(outputs, cloudformation.Output{Key: topology.OutputAPIURL, Value: server.URL})
	stacks.Put(cloudformation.Stack{Name: topology.StackName(topology.LocalStage), Status: cloudformation.CreateComplete, Outputs: outputs})
	t.Setenv("AWS_ENDPOINT_URL", server.URL)
	t.Setenv("AWS_PORT", "")
	t.Setenv("STAGE", "")
}

func problem(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"code":"`+code+`","detail":"Because \u001b[31mred."}`)
	}
}

func answer(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

const (
	succeeded = `{"task_id":"th-1.x","task":"rag_query","thread_id":"th-1","status":"succeeded","attempts":1,"step":"","error":null,"result":{"answer":"No \u001b]0;title\u0007escape","n":9007199254740993}}`
	past      = `{"task_id":"th-1.x","task":"rag_query","status":"succeeded","error":null,"attempts":[],"steps":[]}`
	failed    = `{"task_id":"th-1.x","task":"rag_query","thread_id":"th-1","status":"failed","attempts":4,"step":"","error":{"code":"MODEL_DOWN","message":"no\nanswer"},"result":null}`
)

func call(t *testing.T, streams command.Streams, args ...string) (code int, out, problems string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	streams.Out, streams.Err = &stdout, &stderr
	if streams.In == nil {
		streams.In = strings.NewReader("")
	}
	code = command.Main(t.Context(), args, streams)
	return code, stdout.String(), stderr.String()
}

// What scripts decide on.
func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		what string
		api  http.HandlerFunc
		args string
		code int
		want string // on stderr; "": nothing there
	}{
		{"succeeded", answer(succeeded), "--local status th-1.x", 0, ""},
		{"failed", answer(failed), "--local status th-1.x", 1, ""},
		{"failed, in JSON", answer(failed), "--local --json status th-1.x", 1, ""},
		{"not there", problem(404, "NOT_FOUND"), "--local status th-1.x", 1, "agentctl: NOT_FOUND: Because"},
		{"refused by the API", problem(422, "INVALID_FIELD"), "--local submit Q", 2, "INVALID_FIELD"},
		{"not let in", problem(403, "FORBIDDEN"), "--local submit Q", 3, "FORBIDDEN"},
		{"broken", problem(500, "INTERNAL"), "--local submit Q", 3, "INTERNAL"},
		{"nonsense", answer("<html>"), "--local submit Q", 3, "cannot be read"},
		{"help", nil, "--help", 0, ""},
		{"nothing", nil, "", 0, ""},
		{"group alone", nil, "thread", 0, ""},
		{"unknown command", nil, "sumbit Q", 2, "submit"},
		{"unknown command below a group", nil, "thread delte x", 2, "delete"},
		{"unknown flag", nil, "status --wach x", 2, "--wach"},
		{"flag without value", nil, "status x --stage", 2, "--stage"},
		{"bad value", nil, "load -n many", 2, "many"},
		{"missing argument", nil, "status", 2, "accepts 1 arg"},
		{"one argument too many", nil, "status a b", 2, "accepts 1 arg"},
		{"flags that belong together", nil, "submit --ticket TK-1", 2, "status"},
		{"flags that exclude each other", nil, "submit --ticket TK-1 --status open --ordered", 2, "ordered"},
		{"nothing to submit", nil, "--local submit", 2, "give a question"},
		{"a ticket and a question", nil, "--local submit Q --ticket TK-1 --status open", 2, "give a question"},
		{"a body that is none", nil, "--local submit --task x []", 2, "one JSON object"},
		{"a body that says what a flag says", nil, `--local submit --task x {"task":"y"}`, 2, "what a flag says"},
		{"a load of nothing", nil, "--local load -n 0", 2, "-n and -c"},
		{"a load without time", nil, "--local load --timeout 0", 2, "--timeout"},
		{"negative limit", nil, "--local history th-1 --limit -1", 2, "--limit"},
	} {
		t.Run(c.what, func(t *testing.T) {
			stack(t, c.api)
			code, out, problems := call(t, command.Streams{}, strings.Fields(c.args)...)
			if code != c.code || (c.want == "") != (problems == "") || !strings.Contains(problems, c.want) {
				t.Errorf("exit code %d, stderr %q, want %d and %q", code, problems, c.code, c.want)
			}
			if strings.ContainsAny(out+problems, "\x1b\a") {
				t.Errorf("something of the answer could steer a terminal: %q", out+problems)
			}
		})
	}
}

// A variable of a script that is not set is no id that is not there.
func TestAnEmptyIDIsWrongUsage(t *testing.T) {
	for _, words := range []string{"status", "result", "history", "ticket", "thread show", "thread delete", "dlq show"} {
		code, _, problems := call(t, command.Streams{}, append(strings.Fields(words), "")...)
		if code != 2 || !strings.Contains(problems, "the id is empty") {
			t.Errorf("%s: got %d, %q; want 2, and that the id is empty", words, code, problems)
		}
	}
}

func TestNoChainNoStackNoCredentials(t *testing.T) {
	stack(t, nil)
	for args, want := range map[string]string{
		"--stage prod --region eu-west-1 status x": "no stack agentworker-prod in eu-west-1",
		"status x": "there is no stack agentworker-dev",
	} {
		t.Setenv("AWS_REGION", "us-east-1")
		t.Setenv("AWS_ACCESS_KEY_ID", "id")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
		t.Setenv("AWS_CONFIG_FILE", "/dev/null")
		t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
		code, _, problems := call(t, command.Streams{}, strings.Fields(args)...)
		if code != 3 || !strings.Contains(problems, want) {
			t.Errorf("%s: exit code %d, stderr %q, want 3 and %q", args, code, problems, want)
		}
	}
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	code, _, problems := call(t, command.Streams{}, "--local", "status", "x")
	if code != 3 || !strings.Contains(problems, "make run") {
		t.Errorf("no chain: exit code %d, stderr %q, want 3 and how to start it", code, problems)
	}
}

func TestTheStageIsTakenFromTheEnvironment(t *testing.T) {
	stack(t, nil)
	t.Setenv("STAGE", "test")
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	if _, _, problems := call(t, command.Streams{}, "status", "x"); !strings.Contains(problems, "agentworker-test") {
		t.Errorf("stderr is %q, want the stack agentworker-test", problems)
	}
}

func TestColoursAreForTerminals(t *testing.T) {
	for what, c := range map[string]struct {
		streams command.Streams
		args    []string
		want    bool
	}{
		"on a terminal":          {command.Streams{OutTerminal: true}, nil, true},
		"into a file":            {command.Streams{ErrTerminal: true}, nil, false},
		"with NO_COLOR":          {command.Streams{OutTerminal: true, NoColour: true}, nil, false},
		"as JSON, on a terminal": {command.Streams{OutTerminal: true}, []string{"--json"}, false},
	} {
		stack(t, answer(failed))
		code, out, _ := call(t, c.streams, append(c.args, "--local", "status", "th-1.x")...)
		if coloured := strings.Contains(out, "\x1b[31m"); coloured != c.want || code != 1 {
			t.Errorf("%s: exit code %d, coloured %v, want %v: %q", what, code, coloured, c.want, out)
		}
	}
}

func TestJSONComesThroughWhole(t *testing.T) {
	stack(t, answer(succeeded))
	if _, out, _ := call(t, command.Streams{}, "--local", "--json", "status", "th-1.x"); !strings.Contains(out, `"n": 9007199254740993`) {
		t.Errorf("answer is %s, want every digit", out)
	}
}

func TestAHistoryIsReadPageByPage(t *testing.T) {
	var asked []string
	stack(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		text := `{"thread_id":"th-1","tasks":[` + past + `,` + past + `],"next_cursor":"c2"}`
		if r.URL.Query().Get("cursor") == "c2" {
			text = strings.Replace(text, `"c2"`, "null", 1)
		}
		_, _ = io.WriteString(w, text)
	})
	for args, want := range map[string]struct {
		tasks int
		pages string
	}{
		"--local history th-1":           {4, "limit=100 cursor=c2&limit=100"},
		"--local history th-1 --limit 2": {2, "limit=2"},
		"--local history th-1 --limit 3": {4, "limit=3 cursor=c2&limit=1"}, // this API does not keep to it
	} {
		asked = nil
		code, out, problems := call(t, command.Streams{}, strings.Fields(args)...)
		if n := strings.Count(out, "th-1.x"); code != 0 || n != want.tasks || strings.Join(asked, " ") != want.pages {
			t.Errorf("%s: exit code %d %s, %d tasks, asked %q, want %+v", args, code, problems, n, asked, want)
		}
	}
}

func TestAnInterruptionEndsAWatch(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	stack(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "" {
			interrupt()
			<-r.Context().Done()
		}
		_, _ = io.WriteString(w, strings.Replace(succeeded, "succeeded", "running", 1))
	})
	var out, problems bytes.Buffer
	code := command.Main(ctx, []string{"--local", "status", "--watch", "th-1.x"}, command.Streams{In: strings.NewReader(""), Out: &out, Err: &problems})
	if code != 130 || !strings.Contains(out.String(), "running") || !strings.Contains(problems.String(), "interrupted") {
		t.Errorf("exit code %d, %q, %q, want 130 after what was seen", code, &out, &problems)
	}
}

// What an interruption could not end goes on, and is not to be taken for ended.
func TestAMoveThatCannotBeCancelledSaysSo(t *testing.T) {
	stack(t, answer("{}"))
	ctx, interrupt := context.WithCancel(t.Context())
	received := false
	queues := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch call := r.Header.Get("X-Amz-Target"); call {
		case "AmazonSQS.GetQueueAttributes":
			_, _ = io.WriteString(w, `{"Attributes":{"QueueArn":"arn:aws:sqs:us-east-1:000000000000:x","ApproximateNumberOfMessages":"1"}}`)
		case "AmazonSQS.ReceiveMessage":
			if !received {
				_, _ = io.WriteString(w, `{"Messages":[{"MessageId":"m","ReceiptHandle":"r","Body":"{}","MD5OfBody":"99914b932bd37a50b983c5e7c90ae93b"}]}`)
			} else {
				_, _ = io.WriteString(w, `{}`)
			}
			received = true
		case "AmazonSQS.ListMessageMoveTasks":
			interrupt()
			_, _ = io.WriteString(w, `{"Results":[{"Status":"RUNNING","TaskHandle":"h"}]}`)
		case "AmazonSQS.CancelMessageMoveTask":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"__type":"com.amazonaws.sqs#AccessDeniedException","message":"no"}`)
		default:
			_, _ = io.WriteString(w, `{}`)
		}
	}))
	t.Cleanup(queues.Close)
	t.Setenv("AWS_ENDPOINT_URL_SQS", queues.URL)
	var out, problems bytes.Buffer
	code := command.Main(ctx, []string{"--local", "dlq", "redrive", "--queue", "tasks"}, command.Streams{In: strings.NewReader(""), Out: &out, Err: &problems})
	if want := "interrupted: the move of x could not be cancelled and goes on"; code != 130 || !strings.Contains(out.String(), "RUNNING") || !strings.Contains(problems.String(), want) {
		t.Errorf("exit code %d, %q, %q, want 130 and %q", code, &out, &problems, want)
	}
}
