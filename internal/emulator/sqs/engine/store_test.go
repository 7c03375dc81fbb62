package engine_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"agentworker/internal/emulator/sqs/engine"
)

// A kill may come at any moment: between two transactions a message must not be in neither queue.
func TestMovedMessagesAreInTheFileAllTheTime(t *testing.T) {
	t.Parallel()
	const messages, hops = 5000, 5
	e := open(t, engine.Options{Dir: t.TempDir()})
	queue := func(i int) string { return "queue" + strconv.Itoa(i) }
	create(t, e, queue(hops))
	for i := hops - 1; i >= 0; i-- { // each is the dead-letter queue of the one before it
		policy := fmt.Sprintf(`{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:%s","maxReceiveCount":1}`, queue(i+1))
		if err := e.CreateQueue(queue(i), map[string]string{"RedrivePolicy": policy}, nil); err != nil {
			t.Fatal(err)
		}
	}
	batch := make([]engine.Outgoing, messages)
	for i := range batch {
		batch[i].Body = strconv.Itoa(i)
	}
	if _, err := e.SendBatch(queue(0), batch); err != nil {
		t.Fatal(err)
	}
	none := time.Duration(0)
	if got, err := e.Receive(t.Context(), queue(0), engine.Demand{Max: messages, Visibility: &none}); err != nil || len(got) != messages {
		t.Fatalf("received %d messages, error %v, want %d", len(got), err, messages)
	}

	moved := make(chan error, 1)
	go func() {
		for i := range hops {
			if _, err := e.Receive(t.Context(), queue(i), engine.Demand{Max: 1}); err != nil { // dead-letters them all
				moved <- err
				return
			}
		}
		moved <- nil
	}()
	for moving := true; moving; {
		select {
		case err := <-moved:
			if err != nil {
				t.Fatal(err)
			}
			moving = false
		default:
		}
		if n, err := engine.Stored(e); err != nil || n != messages {
			t.Fatalf("%d messages are in the file, error %v, want %d at any time", n, err, messages)
		}
	}
	if visible, _, _, _ := e.Depth(queue(hops)); visible != messages {
		t.Errorf("%d messages have come to the last queue, want %d", visible, messages)
	}
}
