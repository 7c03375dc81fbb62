package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	infra "agentworker/infra"
)

// fixed is a context with nothing else in it.
type fixed map[string]any

func (f fixed) TryGetContext(key *string) any     { return f[*key] }
func (f fixed) GetAllContext(*map[string]any) any { return map[string]any(f) }

// problems are the sentences that settings are refused with.
func problems(context map[string]any) []string {
	_, err := infra.ReadSettings(fixed(context))
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

func TestDefaultSettingsAreSound(t *testing.T) {
	if got := problems(nil); got != nil {
		t.Errorf("got %q, want no problem", got)
	}
}

// Each refusal is a sentence that says what to change.
func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		context map[string]any
		want    []string
	}{
		"visibility below six times the timeout and the window": {
			map[string]any{"visibilitySeconds": "360", "batchingWindowSeconds": "1"},
			[]string{"agent-tasks: visibility timeout is 6m0s; set at least 6m1s, six times the worker's timeout and the batching window, or a message comes back while it is being worked on (setting visibilitySeconds)"},
		},
		"the timeout counts": {
			map[string]any{"visibilitySeconds": "360", "workerTimeoutSeconds": "61"},
			[]string{
				"agent-tasks: visibility timeout is 6m0s; set at least 6m6s, six times the worker's timeout and the batching window, or a message comes back while it is being worked on (setting visibilitySeconds)",
				"agent-tasks-ordered: visibility timeout is 6m0s; set at least 6m6s, six times the worker's timeout and the batching window, or a message comes back while it is being worked on (setting visibilitySeconds)",
			},
		},
		"few receives": {
			map[string]any{"maxReceiveCount": "4", "retries": "2"},
			[]string{
				"agent-tasks: max receive count is 4; set 5 to 1,000, or throttling sends healthy messages to the dead-letter queue (setting maxReceiveCount)",
				"agent-tasks-ordered: max receive count is 4; set 5 to 1,000, or throttling sends healthy messages to the dead-letter queue (setting maxReceiveCount)",
			},
		},
		"dead letters expire first": {
			map[string]any{"deadLetterRetentionDays": "7"},
			[]string{
				"agent-tasks: dead-letter queue keeps messages for 168h0m0s; set more than the queue's 168h0m0s, since the time in the queue counts (settings queueRetentionDays and deadLetterRetentionDays)",
				"agent-tasks-ordered: dead-letter queue keeps messages for 168h0m0s; set more than the queue's 168h0m0s, since the time in the queue counts (settings queueRetentionDays and deadLetterRetentionDays)",
			},
		},
		"retention of 0": {
			map[string]any{"queueRetentionDays": "0"},
			[]string{
				"agent-tasks: retention is 0s; set whole seconds from 1m0s to 336h0m0s (settings queueRetentionDays and deadLetterRetentionDays)",
				"agent-tasks-ordered: retention is 0s; set whole seconds from 1m0s to 336h0m0s (settings queueRetentionDays and deadLetterRetentionDays)",
			},
		},
		"memory": {
			map[string]any{"workerMemoryMiB": "64"},
			[]string{"worker: memory is 64 MiB; set 128 to 10,240 MiB (setting workerMemoryMiB)"},
		},
		"timeout": {
			map[string]any{"workerTimeoutSeconds": "901"},
			[]string{"worker: timeout is 15m1s; set whole seconds from 1s to 15m0s (setting workerTimeoutSeconds)"},
		},
		"records": {
			map[string]any{"recordRetentionDays": "21"},
			[]string{"records are kept for 504h0m0s; keep them longer than a message can live in a queue and its dead-letter queue, 504h0m0s, or a redriven task would run twice (setting recordRetentionDays)"},
		},
		"retries": {
			map[string]any{"retries": "101", "maxReceiveCount": "200"},
			[]string{"retries are 101; set 0 to 100 (setting retries)"},
		},
		"large FIFO batch": {
			map[string]any{"orderedBatchSize": "11"},
			[]string{"agent-tasks-ordered: batch size is 11; set 1 to 10 for a FIFO queue (setting orderedBatchSize)"},
		},
		"large batch without a window": {
			map[string]any{"batchSize": "11"},
			[]string{"agent-tasks: batch size is 11 without a batching window; set a window of at least 1s, or at most 10 records (settings batchSize and batchingWindowSeconds)"},
		},
		"concurrency of 1": {
			map[string]any{"concurrency": "1"},
			[]string{
				"agent-tasks: maximum concurrency is 1; set 2 to 1,000 (settings concurrency, minimumPollers and maximumPollers)",
				"agent-tasks-ordered: maximum concurrency is 1; set 2 to 1,000 (settings concurrency, minimumPollers and maximumPollers)",
			},
		},
		"concurrency and pollers": {
			map[string]any{"concurrency": "10", "minimumPollers": "2", "maximumPollers": "4"},
			[]string{
				"agent-tasks: both maximum concurrency, 10, and provisioned pollers are set, and they exclude each other; set one of them (settings concurrency, minimumPollers and maximumPollers)",
				"agent-tasks-ordered: both maximum concurrency, 10, and provisioned pollers are set, and they exclude each other; set one of them (settings concurrency, minimumPollers and maximumPollers)",
			},
		},
		"pollers without a maximum": {
			map[string]any{"minimumPollers": "2"},
			[]string{
				"agent-tasks: maximum of provisioned pollers is 0; set 2 to 2,000, and not less than the minimum, 2 (settings concurrency, minimumPollers and maximumPollers)",
				"agent-tasks-ordered: maximum of provisioned pollers is 0; set 2 to 2,000, and not less than the minimum, 2 (settings concurrency, minimumPollers and maximumPollers)",
			},
		},
		"JWT without issuer": {
			map[string]any{"auth": "jwt", "jwtAudience": "me"},
			[]string{`auth is jwt and jwtIssuer is ""; set the https URL of who issues the tokens`},
		},
		"JWT without audience": {
			map[string]any{"auth": "jwt", "jwtIssuer": "https://issuer.example.com"},
			[]string{"auth is jwt without jwtAudience; set whom the tokens are for, or tokens made for others are taken too"},
		},
		"issuer without JWT": {
			map[string]any{"jwtIssuer": "https://issuer.example.com"},
			[]string{"jwtIssuer and jwtAudience are of no use with auth iam; set auth to jwt"},
		},
		"unknown authorization": {
			map[string]any{"auth": "off"},
			[]string{`auth is "off"; set iam, jwt or none`},
		},
		"stage": {
			map[string]any{"stage": "Prod_1"},
			[]string{`stage is "Prod_1"; set 1 to 20 lower-case letters, digits and hyphens, beginning with a letter and not ending in a hyphen`},
		},
		"stage that ends in a hyphen": {
			map[string]any{"stage": "prod-"},
			[]string{`stage is "prod-"; set 1 to 20 lower-case letters, digits and hyphens, beginning with a letter and not ending in a hyphen`},
		},
		"architecture": {
			map[string]any{"architecture": "x86_64"},
			[]string{`architecture is "x86_64"; set arm64 or amd64`},
		},
		"origin": {
			map[string]any{"corsOrigins": "https://a.example.com,*"},
			[]string{`corsOrigins has "*"; set origins such as https://console.example.com`},
		},
		"every origin": { // API Gateway takes it for any page on the internet
			map[string]any{"corsOrigins": "https://*"},
			[]string{`corsOrigins has "https://*"; set origins such as https://console.example.com`},
		},
		"origins that no browser sends": {
			map[string]any{"corsOrigins": "https://a.example.com/ https://a.example.com?x https://A.example.com https://me@a.example.com"},
			[]string{
				`corsOrigins has "https://a.example.com/"; set origins such as https://console.example.com`,
				`corsOrigins has "https://a.example.com?x"; set origins such as https://console.example.com`,
				`corsOrigins has "https://A.example.com"; set origins such as https://console.example.com`,
				`corsOrigins has "https://me@a.example.com"; set origins such as https://console.example.com`,
			},
		},
		"e-mail": {
			map[string]any{"alarmEmail": "Ops <ops@example.com>"},
			[]string{`alarmEmail is "Ops <ops@example.com>"; set an e-mail address`},
		},
		"rate": {
			map[string]any{"ratePerSecond": "0", "burst": "5001"},
			[]string{"ratePerSecond is 0; set 1 to 10,000", "burst is 5001; set 1 to 5,000"},
		},
		"log retention": {
			map[string]any{"logRetentionDays": float64(31)},
			[]string{"logRetentionDays is 31; set one of [1 3 5 7 14 30 60 90 120 150 180 365 400 545 731 1096 1827 2192 2557 2922 3288 3653]"},
		},
		"no number": {
			map[string]any{"batchSize": "ten", "queueRetentionDays": "1.5"},
			[]string{`batchSize is "ten"; set a whole number`, `queueRetentionDays is "1.5"; set a whole number, 0 or more`},
		},
		"no text": {
			map[string]any{"stage": []any{"dev"}},
			[]string{"stage is [dev]; set a text or a number"},
		},
		"unknown model": {
			map[string]any{"model": "gpt", "retriever": "google"},
			[]string{
				`model must be "offline", "bedrock:" and a model's id, or "openai:" and a model's name`,
				`retriever must be "offline", "folder:" and a path, "s3://" and a bucket, or "kb:" and a knowledge base's id`,
			},
		},
		"OpenAI without a key": {
			map[string]any{"model": "openai:gpt"},
			[]string{"model is of OpenAI's and nothing says where its key lies; set openaiKeySecret or openaiKeyParameter"},
		},
		"two keys": {
			map[string]any{"model": "openai:gpt", "openaiKeySecret": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-AbCdEf", "openaiKeyParameter": "key"},
			[]string{"openaiKeySecret and openaiKeyParameter are both set; set one"},
		},
		"secret by name": {
			map[string]any{"model": "openai:gpt", "openaiKeySecret": "key"},
			[]string{"openaiKeySecret is not a secret's ARN; set the whole ARN, with the hyphen and the six characters at its end"},
		},
		"secret without the end of its ARN": { // which the role's permission would not match
			map[string]any{"model": "openai:gpt", "openaiKeySecret": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key"},
			[]string{"openaiKeySecret is not a secret's ARN; set the whole ARN, with the hyphen and the six characters at its end"},
		},
		"parameter by ARN": {
			map[string]any{"model": "openai:gpt", "openaiKeyParameter": "arn:aws:ssm:eu-west-1:123456789012:parameter/key"},
			[]string{"openaiKeyParameter is not a parameter's name; set one such as /agentworker/openai-key"},
		},
		"all parameters": {
			map[string]any{"model": "openai:gpt", "openaiKeyParameter": "/agentworker/*"},
			[]string{"openaiKeyParameter is not a parameter's name; set one such as /agentworker/openai-key"},
		},
		"key of a model that is not there": {
			map[string]any{"openaiKeyParameter": "key", "openaiBaseUrl": "https://example.com/v1"},
			[]string{
				"openaiBaseUrl is of no use with another model than OpenAI's; set model to openai:<model>",
				"openaiKeyParameter is of no use with another model than OpenAI's; set model to openai:<model>",
			},
		},
		"key and questions in the clear": {
			map[string]any{"model": "openai:gpt", "openaiBaseUrl": "http://models.example.com/v1", "openaiKeyParameter": "key"},
			[]string{"openaiBaseUrl is without TLS: the key and what is asked would cross the internet in the clear; set an https URL"},
		},
		"all models": {
			map[string]any{"model": "bedrock:*"},
			[]string{"model is not a model's or an inference profile's; set bedrock: and its id or ARN"},
		},
		"no bucket": {
			map[string]any{"retriever": "s3:///docs"},
			[]string{"retriever has no bucket's name; set s3://bucket or s3://bucket/prefix, without * and ?"},
		},
		"all buckets": {
			map[string]any{"retriever": "s3://docs/*"},
			[]string{"retriever has no bucket's name; set s3://bucket or s3://bucket/prefix, without * and ?"},
		},
		"all knowledge bases": {
			map[string]any{"retriever": "kb:*"},
			[]string{"retriever has no knowledge base's id; set kb: and its ten letters and digits"},
		},
		"nothing": {
			map[string]any{"maxTokensPerTask": "0", "modelTimeoutSeconds": "0"},
			[]string{
				"maxTokensPerTask is 0; set 1 or more, or leave it out",
				"modelTimeoutSeconds is 0; set 1 or more, or leave it out",
			},
		},
		"slow model": {
			map[string]any{"model": "bedrock:some.model", "workerTimeoutSeconds": "45"},
			[]string{"a call of the model may take 45s and the worker 45s; set modelTimeoutSeconds to less, or workerTimeoutSeconds to more"},
		},
		"folder": {
			map[string]any{"retriever": "folder:docs"},
			[]string{"retriever is a folder, which is on a laptop only; set s3://bucket/prefix or kb:id"},
		},
		"topics": {
			map[string]any{"allowedTopics": "arn:aws:sns:eu-west-1:123456789012:*"},
			[]string{"allowedTopics is not a list of topic ARNs with commas between them"},
		},
		"topic that is a queue": {
			map[string]any{"allowedTopics": "arn:aws:sqs:eu-west-1:123456789012:jobs"},
			[]string{"allowedTopics is not a list of topic ARNs with commas between them"},
		},
		"more than an environment holds": {
			map[string]any{"allowedTopics": strings.Repeat("arn:aws:sns:eu-west-1:123456789012:jobs,", 80)},
			[]string{"what the worker asks, searches and takes from topics needs 3213 bytes; set fewer allowedTopics or shorter names: Lambda has 4 KB for all of a function's environment, 3,000 for these"},
		},
		"misspelt": {
			map[string]any{"maxRecieveCount": "7", "@aws-cdk/core:x": true, "aws:cdk:y": true, "cli-telemetry": false},
			[]string{"there is no setting maxRecieveCount; the README lists them"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, problems(test.context)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// What AWS has given a name to is not refused for it.
func TestNamesOfAWS(t *testing.T) {
	openai := func(name, value string) map[string]any { return map[string]any{"model": "openai:gpt", name: value} }
	tests := map[string]map[string]any{
		"a model of a size":                {"model": "bedrock:anthropic.claude-v2:1:200k"},
		"an inference profile":             {"model": "bedrock:us-gov.anthropic.claude-sonnet-4-5-20250929-v1:0"},
		"an application inference profile": {"model": "bedrock:arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/a1b2c3d4e5f6"},
		"an inference profile in GovCloud": {"model": "bedrock:arn:aws-us-gov:bedrock:us-gov-west-1:123456789012:inference-profile/us-gov.some.model-v1:0"},
		"a bucket with dots":               {"retriever": "s3://docs.example.com/a folder/b"},
		"a bucket of Virginia before 2018": {"retriever": "s3://Our_Docs/handbook"},
		"a secret of China's":              openai("openaiKeySecret", "arn:aws-cn:secretsmanager:cn-north-1:123456789012:secret:agent/key+1@x-AbC123"),
		"a parameter at a path":            openai("openaiKeyParameter", "/agentworker/prod/openai-key"),
		"a topic of GovCloud's":            {"allowedTopics": "arn:aws-us-gov:sns:us-gov-east-1:123456789012:jobs.fifo"},
		"a page that is being written":     {"corsOrigins": "http://localhost:5173,http://127.0.0.1:3000,http://[::1]:8080"},
	}
	for name, context := range tests {
		t.Run(name, func(t *testing.T) {
			if got := problems(context); got != nil {
				t.Errorf("got %q, want no problem", got)
			}
		})
	}
}

// Whoever deploys mends everything in one go.
func TestAllProblemsAreReportedAtOnce(t *testing.T) {
	got := problems(map[string]any{
		"stage": "", "auth": "jwt", "maxReceiveCount": "1", "batchSize": "10001", "concurrency": "1", "orderedBatchSize": "0",
		"visibilitySeconds": "1", "deadLetterRetentionDays": "1", "nonsense": "1",
	})
	for _, want := range []string{
		"no setting nonsense", "stage is", "jwtIssuer is", "without jwtAudience", "max receive count is 1; set 5", "batch size is 10001",
		"maximum concurrency is 1", "batch size is 0", "visibility timeout is 1s", "dead-letter queue keeps messages for 24h0m0s",
	} {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("no problem says %q in:\n%s", want, strings.Join(got, "\n"))
		}
	}
}

// A visibility timeout that nobody has set follows the timeout and the window.
func TestVisibilityFollows(t *testing.T) {
	s, err := infra.ReadSettings(fixed{"workerTimeoutSeconds": "100", "batchingWindowSeconds": "5"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Topology.Tasks.Queue.Visibility.Seconds(), 605.0; got != want {
		t.Errorf("tasks: got %v s, want %v s", got, want)
	}
	if got, want := s.Topology.Ordered.Queue.Visibility.Seconds(), 600.0; got != want {
		t.Errorf("ordered: got %v s, want %v s", got, want)
	}
}

// The README's table has every setting with the default that holds, and no other.
func TestSettingsAreInTheReadme(t *testing.T) {
	documented := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `([a-zA-Z0-9]+)` \\| ([^|]*)\\| [^|]+ \\|$")
	for _, m := range row.FindAllStringSubmatch(section(t, "Deploy"), -1) {
		documented[m[1]] = strings.Trim(m[2], "` ")
	}
	want := map[string]string{
		"stage": "dev", "architecture": "arm64", "auth": "iam", "jwtIssuer": "", "jwtAudience": "", "corsOrigins": "",
		"ratePerSecond": "50", "burst": "100", "alarmEmail": "", "workerMemoryMiB": "256", "workerTimeoutSeconds": "60",
		"visibilitySeconds": "", "retries": "3", "maxReceiveCount": "5", "batchSize": "10", "batchingWindowSeconds": "0",
		"model": "", "modelTimeoutSeconds": "", "maxTokensPerTask": "", "retriever": "", "openaiBaseUrl": "", "openaiKeySecret": "",
		"openaiKeyParameter": "", "allowedTopics": "",
		"orderedBatchSize": "1", "concurrency": "10", "minimumPollers": "", "maximumPollers": "", "queueRetentionDays": "7",
		"deadLetterRetentionDays": "14", "recordRetentionDays": "90", "logRetentionDays": "30",
	}
	if diff := cmp.Diff(want, documented); diff != "" {
		t.Errorf("README's table of settings (-want +got):\n%s", diff)
	}
	var names []string
	defaults, err := infra.ReadSettings(fixed{})
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range infra.AllSettings() {
		names = append(names, setting.Name)
		if want[setting.Name] == "" {
			continue
		}
		// Setting a default changes nothing.
		made, err := infra.ReadSettings(fixed{setting.Name: want[setting.Name]})
		if err != nil {
			t.Errorf("%s=%s: %v", setting.Name, want[setting.Name], err)
		}
		if diff := cmp.Diff(defaults.Topology, made.Topology); diff != "" {
			t.Errorf("%s=%s is not the default (-default +set):\n%s", setting.Name, want[setting.Name], diff)
		}
		for _, pair := range [][2]any{{defaults.Stage, made.Stage}, {defaults.Auth.Kind, made.Auth.Kind}, {defaults.Burst, made.Burst}, {defaults.RatePerSecond, made.RatePerSecond}, {defaults.LogRetentionDays, made.LogRetentionDays}, {defaults.Architecture, made.Architecture}} {
			if pair[0] != pair[1] {
				t.Errorf("%s=%s is not the default: got %v, want %v", setting.Name, want[setting.Name], pair[1], pair[0])
			}
		}
	}
	slices.Sort(names)
	documentedNames := []string{}
	for name := range documented {
		documentedNames = append(documentedNames, name)
	}
	slices.Sort(documentedNames)
	if diff := cmp.Diff(names, documentedNames); diff != "" {
		t.Errorf("settings in code and README (-code +README):\n%s", diff)
	}
}

// A function that has not been built is named, with the command that builds it.
func TestMissingBinaries(t *testing.T) {
	s := infra.DefaultSettings()
	s.BinDir, s.Architecture = t.TempDir(), "amd64"
	err := s.CheckBinaries()
	if err == nil {
		t.Fatal("no error without binaries")
	}
	for _, name := range []string{"worker", "submit", "dlqalarm"} {
		if !strings.Contains(err.Error(), name+"/bootstrap is not there; run make build ARCH=amd64") {
			t.Errorf("nothing about %s in: %v", name, err)
		}
	}
	s.BinDir = binDir
	if err := s.CheckBinaries(); err != nil {
		t.Errorf("with binaries: got %v, want nil", err)
	}
}

// A worker that lacks what it is configured with would fail every task once it is deployed.
func TestWorkerWithoutItsParts(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := infra.DefaultSettings()
	s.BinDir = dir
	for _, name := range []string{"submit", "dlqalarm"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(binDir, name))); err != nil {
			t.Fatal(err)
		}
	}
	const problem = "worker/bootstrap was built without kb; run make build ARCH=arm64 WORKER_TAGS=slim,bedrock,kb"
	for tags, want := range map[string]string{
		"lambda.norpc": "", "lambda.norpc,slim,bedrock,kb": "", "lambda.norpc,slim,bedrock": problem,
	} {
		build := exec.CommandContext(t.Context(), "go", "build", "-tags", tags, "-o", filepath.Join(dir, "worker", "bootstrap"), source)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
		s.Worker.Model, s.Worker.Retriever = "bedrock:m", "kb:ABCDEFGHIJ"
		err := s.CheckBinaries()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("built with %s: got %v, want %q", tags, err, want)
		}
	}
}

// section is what stands below a heading of the README's second level.
func section(t *testing.T, heading string) string {
	t.Helper()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("README has no section %q", heading)
	}
	body, _, _ := strings.Cut(rest, "\n## ")
	return body
}
