package mapping_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentworker/internal/emulator/lambda"
	"agentworker/internal/emulator/mapping"
)

// manage starts a managed mapping whose function says that m1 fails; it returns the batches.
func manage(t *testing.T, q *queue, busy time.Duration) (*mapping.Managed, *log) {
	t.Helper()
	l := &log{}
	m, err := mapping.NewManaged("uuid", "arn:function", mapping.Config{
		QueueURL: "http://127.0.0.1:4566/123456789012/tasks", QueueARN: standardARN, FunctionTimeout: 10 * time.Second,
		ReportBatchItemFailures: true, MaximumConcurrency: 2, SQS: q, Logger: slog.New(slog.DiscardHandler),
		Function: function(func(_ context.Context, records []record) (lambda.Result, error) {
			time.Sleep(busy)
			l.add("%s", names(records))
			if strings.Contains(names(records), "m1") {
				return lambda.Result{Payload: []byte(`{"batchItemFailures":[{"itemIdentifier":"m1"}]}`)}, nil
			}
			return lambda.Result{}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return m, l
}

func alter(t *testing.T, m *mapping.Managed, change func(*mapping.Config, *bool)) {
	t.Helper()
	if err := m.Update(t.Context(), func(c *mapping.Config, enabled *bool) error { change(c, enabled); return nil }); err != nil {
		t.Fatal(err)
	}
}

func TestAMappingThatIsToldNotToReportFailuresDeletesThem(t *testing.T) {
	t.Parallel()
	for report, want := range map[bool]string{true: "m1×1", false: ""} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(false, time.Minute)
			m, _ := manage(t, q, 0)
			synctest.Wait()
			alter(t, m, func(c *mapping.Config, _ *bool) { c.ReportBatchItemFailures = report })
			q.send(msg("m1"), msg("m2"))
			time.Sleep(time.Second)
			synctest.Wait()
			if got := q.left(); got != want {
				t.Errorf("reporting %v: got %q left, want %q", report, got, want)
			}
		})
	}
}

func TestADisabledMappingReceivesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(false, time.Minute)
		m, l := manage(t, q, 0)
		synctest.Wait()
		alter(t, m, func(_ *mapping.Config, enabled *bool) { *enabled = false })
		synctest.Wait()
		q.send(msg("m2"))
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := q.left(); got != "m2×0" || l.text() != "" || m.State().Enabled {
			t.Errorf("disabled: got %q left and %q delivered, want m2 untouched", got, l.text())
		}
		alter(t, m, func(_ *mapping.Config, enabled *bool) { *enabled = true })
		time.Sleep(time.Second)
		synctest.Wait()
		if got := q.left(); got != "" || l.text() != "m2" {
			t.Errorf("enabled: got %q left and %q delivered, want m2 done", got, l.text())
		}
	})
}

// What a mapping works on when it is changed ends as it would have.
func TestAChangeCutsNoInvocationOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(false, time.Minute)
		m, l := manage(t, q, 5*time.Second)
		q.send(msg("m2"))
		time.Sleep(time.Second)
		synctest.Wait()
		alter(t, m, func(c *mapping.Config, _ *bool) { c.BatchSize = 1 })
		if !m.State().Pending {
			t.Error("a change is in effect while an invocation of before runs on")
		}
		q.send(msg("m3"), msg("m4"))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := q.left(); got != "" || !strings.HasPrefix(l.text(), "m2\n") || strings.Contains(l.text(), "m3 m4") {
			t.Errorf("got %q left and %q delivered, want m2 once, then m3 and m4 alone", got, l.text())
		}
		if s := m.State(); s.Config.BatchSize != 1 || s.Pending {
			t.Errorf("got %+v, want a batch size of 1 in effect", s)
		}
	})
}

func TestAChangeThatAWSWouldRefuseChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(false, time.Minute)
		m, l := manage(t, q, 0)
		synctest.Wait()
		if err := m.Update(t.Context(), func(c *mapping.Config, _ *bool) error { c.BatchSize = 20_000; return nil }); err == nil {
			t.Error("a batch of 20,000: got no error")
		}
		q.visibility = 5 * time.Second // below the function's 10 s
		if err := m.Update(t.Context(), func(c *mapping.Config, _ *bool) error { c.BatchSize = 5; return nil }); !errors.Is(err, mapping.ErrVisibilityTooShort) {
			t.Errorf("a visibility timeout below the function's timeout: got %v, want %v", err, mapping.ErrVisibilityTooShort)
		}
		q.send(msg("m2"))
		time.Sleep(time.Second)
		synctest.Wait()
		if l.text() != "m2" {
			t.Errorf("got %q delivered, want the mapping to go on as it was", l.text())
		}
		refused := errors.New("no")
		err := m.Update(t.Context(), func(c *mapping.Config, enabled *bool) error { c.BatchSize, *enabled = 5, false; return refused })
		if s := m.State(); !errors.Is(err, refused) || !s.Enabled || s.Config.BatchSize != 0 {
			t.Errorf("got %v and %+v, want nothing changed", err, s)
		}
	})
}
