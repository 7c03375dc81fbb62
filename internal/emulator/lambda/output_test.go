package lambda_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"agentworker/internal/emulator/lambda"
)

func TestOutputIsWholeAndAttributed(t *testing.T) {
	t.Parallel()
	f, lines := start(t, lambda.Config{MemoryMiB: 256})
	const count = 3000
	for round := range 3 {
		text := strings.Repeat("line", 20) + fmt.Sprint(round)
		result := invoke(t, f, event{"do": "print", "text": text, "count": count})
		next := map[lambda.Stream]int{}
		// Everything is there when the answer is.
		for _, line := range lines.all() {
			if line.RequestID != result.RequestID || line.Stream == lambda.Platform {
				continue
			}
			want := fmt.Sprintf("%s %d", text, next[line.Stream])
			if line.Stream == lambda.Stderr {
				want = "error " + want
			}
			if line.Text != want {
				t.Fatalf("%s: got %q, want %q", line.Stream, line.Text, want)
			}
			next[line.Stream]++
		}
		if next[lambda.Stdout] != count || next[lambda.Stderr] != count {
			t.Fatalf("got %v lines, want %d of each", next, count)
		}
		if tail := string(result.LogTail); len(tail) != 4096 || !strings.Contains(tail, "REPORT RequestId: "+result.RequestID) {
			t.Errorf("log tail: got %d bytes ending in %q, want 4096 with the report", len(tail), tail[max(0, len(tail)-200):])
		}
	}
	var platform []string
	for _, line := range lines.all() {
		if line.Stream == lambda.Platform {
			platform = append(platform, strings.Fields(line.Text)[0])
		}
	}
	if got, want := strings.Join(platform, " "), "START END REPORT START END REPORT START END REPORT"; got != want {
		t.Errorf("platform lines: got %s, want %s", got, want)
	}
}

func TestOutputBeforeAnExitIsNotLost(t *testing.T) {
	t.Parallel()
	f, lines := start(t, lambda.Config{})
	result := invoke(t, f, event{"do": "print and exit", "text": "last words", "count": 2000})
	var got []string
	for _, line := range lines.all() {
		if line.Stream == lambda.Stdout && line.RequestID == result.RequestID {
			got = append(got, line.Text)
		}
	}
	if len(got) != 2001 || got[1999] != "last words 1999" || got[2000] != "no end" {
		t.Errorf("got %d lines ending in %q, want 2001 ending in \"no end\"", len(got), got[max(0, len(got)-2):])
	}
}

func TestPeakMemoryIsReported(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells the peak of another process's memory")
	}
	f, _ := start(t, lambda.Config{})
	if got := invoke(t, f, event{"do": "allocate", "count": 60 << 20}).MaxMemoryMiB; got < 60 || got > 200 {
		t.Errorf("got %d MiB after allocating 60, want at least that", got)
	}
}
