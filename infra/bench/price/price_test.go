package price_test

import (
	"flag"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"agentworker/infra/bench/contest"
	"agentworker/infra/bench/price"
	"agentworker/internal/agent"
	"agentworker/internal/checkpoint"
	"agentworker/internal/emulator/dynamodb/dynamodbtest"
	"agentworker/internal/task"
)

var update = flag.Bool("update", false, "write the tables of the README anew")

func TestMain(m *testing.M) { dynamodbtest.Main(m) }

const readme = "../../../README.md"

// The README's tables are computed from what the binaries send to a DynamoDB.
func TestReadmeSaysWhatTasksCost(t *testing.T) {
	table, err := contest.OpenTable(t.Context(), dynamodbtest.Endpoint(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
	bill := price.Bill(
		design(t, table, contest.Ours(), "agentworker", submitted(t, table)),
		design(t, table, contest.Seed(), "whole state", 0))

	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	section := section(t, string(text), "What it costs")
	want := section
	for first, table := range map[string]string{"| a million tasks": bill, "| price": price.List()} {
		have := tableAt(t, section, first)
		if have != table {
			t.Logf("the README has\n%s\nwant\n%s", have, table)
		}
		want = strings.Replace(want, have, table, 1)
	}
	if want == section {
		return
	}
	if !*update {
		t.Error("the README's section is not what was measured; renew it: go test ./infra/bench/price -update")
		return
	}
	if err := os.WriteFile(readme, []byte(strings.Replace(string(text), section, want, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Per task: one HTTP request; an invocation of submit and, on a quiet queue, one of the worker; a message that is sent,
// received and deleted. Both functions have 256 MB; submit takes 20 ms, the worker 50 ms and the time that its model takes,
// which is not counted here.
const gbSeconds = 0.25 * (0.020 + 0.050)

// design measures the units of one task of a contestant at each turn; submitted are the write units before it is queued.
func design(t *testing.T, table *contest.Table, c contest.Contestant, name string, submitted float64) price.Design {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "lambda.norpc", "-o", c.Binary(dir), c.Source)
	build.Dir, build.Env = filepath.Dir(readme), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", c.Source, err, out)
	}
	d := price.Design{Name: name}
	for _, turn := range []int{1, 100, 1000} {
		cost, err := table.At(t.Context(), c, dir, turn)
		if err != nil {
			t.Fatal(err)
		}
		d.Tasks = append(d.Tasks, price.Task{
			HTTPRequests: 1, LambdaRequests: 2, SQSRequests: 3, GBSeconds: gbSeconds,
			WriteUnits: submitted + cost.WriteUnits, ReadUnits: cost.ReadUnits,
		})
	}
	return d
}

// submitted measures the write units of the record that submit makes.
func submitted(t *testing.T, table *contest.Table) float64 {
	t.Helper()
	name, err := table.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	store := checkpoint.New(dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(table.Meter.URL()), HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}), name, checkpoint.Options{})
	return table.Meter.Measure(func() {
		thread := contest.Thread(0)
		m := task.Message{Task: agent.RAGQuery, ID: task.NewID(thread, time.Now()), Thread: thread}
		if _, _, err := store.Create(t.Context(), m, time.Now()); err != nil {
			t.Error(err)
		}
	}).WriteUnits
}

func TestBill(t *testing.T) {
	t.Parallel()
	tasks := []price.Task{{HTTPRequests: 1, WriteUnits: 8}, {LambdaRequests: 2, GBSeconds: 0.25}, {SQSRequests: 3, ReadUnits: 10}}
	got := price.Bill(price.Design{Name: "d", Tasks: tasks})
	for _, want := range []string{
		"| a million tasks, in US dollars | d, turn 1 | d, turn 100 | d, turn 1,000 |\n",
		"| DynamoDB write request units, on demand | 5.00 (8) | 0.00 (0) | 0.00 (0) |\n",
		"| **together** | **6.00** | **3.73** | **2.75** |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the bill is\n%s\nwant in it\n%s", got, want)
		}
	}
}

// section is the text below a heading, up to the next one of its level.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, after, found := strings.Cut(text, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("the README has no heading %q", heading)
	}
	before, _, _ := strings.Cut(after, "\n## ")
	return before
}

// tableAt is the table whose first line begins with the given text.
func tableAt(t *testing.T, text, first string) string {
	t.Helper()
	at := strings.Index(text, "\n"+first)
	if at < 0 {
		t.Fatalf("the section has no table that begins with %q", first)
	}
	table, _, _ := strings.Cut(text[at+1:], "\n\n")
	return strings.TrimSuffix(table, "\n") + "\n"
}
