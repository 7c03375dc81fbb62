package drill_test

import (
	"strings"
	"testing"

	"agentworker/internal/emulator/drill"
	"agentworker/internal/emulator/dynamodb/dynamodbtest"
)

func TestMain(m *testing.M) { dynamodbtest.Main(m) }

// All promises at once, under all faults at once. The same at length: make faults.
func TestNothingIsLostAndNothingIsDoneTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	report, err := drill.Run(t.Context(), drill.Config{Tasks: 2000, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	report.Print(&text)
	t.Logf("\n%s", text.String())
	if report.Failed() || report.Lost > 0 || report.Doubled > 0 || report.DeadLettered != report.Planted {
		t.Error("promises were broken")
	}
	if report.Planted != 20 || report.Repeated == 0 || report.Interrupted < report.Repeated {
		t.Errorf("%d planted, %d repeated, %d interrupted: want 20 planted, some repeated and no more than interrupted", report.Planted, report.Repeated, report.Interrupted)
	}
	// A drill in which a fault never struck proves nothing about it. The rarest strike about twice.
	if idle := report.Idle(); len(idle) > 2 {
		t.Errorf("faults %v never struck", idle)
	}
}
