package contest_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"agentworker/infra/bench/contest"
	"agentworker/internal/emulator/dynamodb/dynamodbtest"
)

func TestMain(m *testing.M) { dynamodbtest.Main(m) }

// What is compared must be comparable.
func TestLeanSendsWhatOursSends(t *testing.T) {
	t.Parallel()
	table := open(t)
	dir := build(t, contest.Ours(), contest.Lean())
	for _, turn := range []int{1, 2, 30} {
		ours, lean := at(t, table, contest.Ours(), dir, turn), at(t, table, contest.Lean(), dir, turn)
		if !maps.Equal(ours.Requests, lean.Requests) || ours.WriteUnits != lean.WriteUnits {
			t.Errorf("turn %d: ours sends %v for %v units, lean %v for %v, want the same", turn, ours.Requests, ours.WriteUnits, lean.Requests, lean.WriteUnits)
		}
	}
	if ours := at(t, table, contest.Ours(), dir, 1); ours.Logged == 0 {
		t.Error("ours has logged nothing, want its log to be counted")
	}
}

func TestSeedGrowsUntilItEnds(t *testing.T) {
	t.Parallel()
	table := open(t)
	dir := build(t, contest.Seed())
	first, later := at(t, table, contest.Seed(), dir, 1), at(t, table, contest.Seed(), dir, 500)
	if first.WriteUnits != 2 || later.WriteUnits < 150 || first.Total() != 3 || later.Total() != 3 {
		t.Errorf("%d requests and %v units at turn 1, %d and %v at turn 500, want 3 and 2, 3 and more than 150",
			first.Total(), first.WriteUnits, later.Total(), later.WriteUnits)
	}
	if _, err := table.At(t.Context(), contest.Seed(), dir, 2000); !errors.Is(err, contest.ErrTooLarge) {
		t.Errorf("turn 2,000: error %v, want %v", err, contest.ErrTooLarge)
	}
}

func TestARecordThatFailsIsAnError(t *testing.T) {
	t.Parallel()
	table := open(t)
	dir := build(t, contest.Ours(), contest.Seed())
	broken := [][]byte{contest.Payload(append(contest.Records(1), contest.Record(contest.Thread(1), "")))} // no question
	for _, c := range []contest.Contestant{contest.Ours(), contest.Seed()} {
		name := "no-such-table"
		if c.Name == "ours" {
			var err error
			if name, err = table.New(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := contest.Feed(t.Context(), c.Function(dir, table.Endpoint, name), broken); err == nil {
			t.Errorf("%s: got no error, want one", c.Name)
		}
	}
}

func TestFeedTellsWhatWasUsed(t *testing.T) {
	t.Parallel()
	dir := build(t, contest.Bare())
	payloads := contest.Batches(4, 3, 5)
	if len(payloads) != 3 {
		t.Fatalf("12 records in batches of 5 make %d batches, want 3", len(payloads))
	}
	f := contest.Bare().Function(dir, "http://127.0.0.1:1", "table")
	use, err := contest.Feed(t.Context(), f, payloads)
	if err != nil || use.CPU <= 0 || len(use.Durations) != 3 {
		t.Errorf("got %+v, error %v, want processor time and 3 durations", use, err)
	}
}

func open(t *testing.T) *contest.Table {
	t.Helper()
	table, err := contest.OpenTable(t.Context(), dynamodbtest.Endpoint(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
	return table
}

func at(t *testing.T, table *contest.Table, c contest.Contestant, dir string, turn int) contest.Cost {
	t.Helper()
	cost, err := table.At(t.Context(), c, dir, turn)
	if err != nil {
		t.Fatal(err)
	}
	return cost
}

// build makes the contestants' binaries.
func build(t *testing.T, contestants ...contest.Contestant) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, c := range contestants {
		command := exec.CommandContext(t.Context(), "go", "build", "-tags", "lambda.norpc", "-o", c.Binary(dir), c.Source)
		command.Dir, command.Env = filepath.Join("..", "..", ".."), append(os.Environ(), "CGO_ENABLED=0")
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", c.Source, err, strings.TrimSpace(string(out)))
		}
	}
	return dir
}
