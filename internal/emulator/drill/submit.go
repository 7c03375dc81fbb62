package drill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/cenkalti/backoff/v5"
	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"agentworker/internal/task"
)

// client submits jobs until they are accepted, as a patient client does.
type client struct {
	api            string
	http           *http.Client
	sqs            *sqs.Client
	tasks, ordered string       // queue URLs
	pace           *time.Ticker // of a steady load; nil: as fast as it goes
	run            string       // tells the keys of this run from others'
	accepted       atomic.Int64
	left           atomic.Int64 // messages on the queues, as seen last
	retries        atomic.Int64 // requests that were sent again
}

// clients is how many jobs are being submitted at once.
const clients = 12

// submit submits all jobs: those of one ticket one after another, the others side by side.
func (c *client) submit(ctx context.Context, jobs []*job) error {
	lanes := [][]*job{}
	lane := map[string]int{}
	for _, j := range jobs {
		at, known := lane[j.ticket]
		if j.ticket == "" || !known {
			at = len(lanes)
			lane[j.ticket] = at
			lanes = append(lanes, nil)
		}
		lanes[at] = append(lanes[at], j)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(clients)
	for _, lane := range lanes {
		g.Go(func() error {
			for _, j := range lane {
				if c.pace != nil {
					select {
					case <-c.pace.C:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				if err := c.submitOne(ctx, j); err != nil {
					return fmt.Errorf("submit %s: %w", j.name(), err)
				}
				c.accepted.Add(1)
			}
			return nil
		})
	}
	return g.Wait()
}

// mostLeft keeps the queues short, so that a message that is due is also delivered.
const mostLeft = 300

// wait waits until the queues are short enough for more.
func (c *client) wait(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for c.left.Load() > mostLeft {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *client) submitOne(ctx context.Context, j *job) error {
	if err := c.wait(ctx); err != nil {
		return err
	}
	if j.way != viaAPI {
		return c.send(ctx, j)
	}
	id, err := c.post(ctx, j)
	if err != nil {
		return err
	}
	j.id = id
	if !j.twice {
		return nil
	}
	again, err := c.post(ctx, j)
	if err == nil && again != id {
		err = fmt.Errorf("under one Idempotency-Key it became task %s and then %s", id, again)
	}
	return err
}

// post submits over the API, again and again under one key until the answer is 202.
func (c *client) post(ctx context.Context, j *job) (task.ID, error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 20*time.Millisecond, time.Second
	return backoff.Retry(ctx, func() (task.ID, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.api+j.path, strings.NewReader(j.body))
		if err != nil {
			return "", backoff.Permanent(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", c.run+"-"+j.name())
		answer, err := c.http.Do(r)
		if err != nil {
			c.retries.Add(1)
			return "", err
		}
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode >= http.StatusInternalServerError || answer.StatusCode == http.StatusTooManyRequests {
			c.retries.Add(1)
			return "", errors.Join(err, fmt.Errorf("status %d: %s", answer.StatusCode, text))
		}
		var accepted struct {
			TaskID task.ID `json:"task_id"`
		}
		if err := json.Unmarshal(text, &accepted); err != nil || answer.StatusCode != http.StatusAccepted {
			return "", backoff.Permanent(fmt.Errorf("status %d: %s", answer.StatusCode, text))
		}
		return accepted.TaskID, nil
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(2*time.Minute))
}

// send puts a message straight onto a queue.
func (c *client) send(ctx context.Context, j *job) error {
	in := &sqs.SendMessageInput{QueueUrl: &c.tasks, MessageBody: &j.body}
	if j.way == viaOrdered {
		in.QueueUrl, in.MessageGroupId, in.MessageDeduplicationId = &c.ordered, &j.thread, aws.String(j.name())
	} else if j.thread != "" {
		in.MessageGroupId = &j.thread
	}
	if j.id != "" {
		in.MessageAttributes = map[string]types.MessageAttributeValue{
			task.AttributeTaskID: {DataType: aws.String("String"), StringValue: aws.String(string(j.id))},
		}
	}
	out, err := c.sqs.SendMessage(ctx, in)
	if err != nil {
		return err
	}
	j.messageID = aws.ToString(out.MessageId)
	return nil
}
