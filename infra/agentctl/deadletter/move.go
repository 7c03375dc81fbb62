package deadletter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"agentworker/internal/dlq"
)

// MaxMoveRate is the most messages a second that a move task takes.
// Source: Amazon SQS API Reference, "StartMessageMoveTask".
const MaxMoveRate = 500

// Move says how far SQS has come with moving a whole queue.
type Move struct {
	Queue string `json:"queue"`
	// Status is RUNNING, COMPLETED, CANCELLING, CANCELLED or FAILED; UNKNOWN when SQS could not be asked.
	Status  string `json:"status"`
	Moved   int64  `json:"moved"`
	ToMove  int64  `json:"to_move"` // as many as lay there at the start
	Problem string `json:"problem,omitzero"`
	// Joined says that the task was already running: this program did not start it.
	Joined bool `json:"joined,omitzero"`
}

const (
	statusRunning    = "RUNNING"
	statusCancelling = "CANCELLING"
	statusCancelled  = "CANCELLED"
	statusCompleted  = "COMPLETED"
	statusFailed     = "FAILED"
	statusUnknown    = "UNKNOWN"
)

// errNoMove says that SQS knows of no task.
var errNoMove = errors.New("SQS knows of none")

// MoveAll has SQS move everything back to the tasks' queue, and waits until that is done. A task that is already running is
// joined. When the context ends it cancels the task; what has been moved until then stays moved. rate is messages a
// second, up to [MaxMoveRate]; zero: as SQS sees fit.
//
// SQS does not move what somebody hides just then, as the alarm's function does while it looks. For that it starts
// again, until as many messages are moved as lay there in the beginning, or for as long as they may stay hidden: those
// that have failed again meanwhile are not to go round for ever.
//
// The messages get new ids: to the worker they are new, and their tasks run again. progress, if not nil, is told of each look.
func (q *Queue) MoveAll(ctx context.Context, rate int, progress func(Move)) (Move, error) {
	from, err := dlq.ReadDepth(ctx, q.SQS, q.DeadLetterURL)
	if err != nil {
		return Move{}, err
	}
	to, err := dlq.ReadDepth(ctx, q.SQS, q.URL)
	if err != nil {
		return Move{}, err
	}
	all := Move{Queue: q.Name(), ToMove: int64(from.Total())}
	add := func(m Move) Move {
		sum := all
		sum.Status, sum.Problem, sum.Joined = m.Status, m.Problem, all.Joined || m.Joined
		sum.Moved += m.Moved
		sum.ToMove = max(sum.ToMove, sum.Moved)
		return sum
	}
	for giveUp := time.Now().Add(q.Hide + 5*q.Pause); ; {
		m, err := q.moveOnce(ctx, from.ARN, to.ARN, rate, func(m Move) {
			if progress != nil {
				progress(add(m))
			}
		})
		if all = add(m); err != nil || m.Status != statusCompleted || all.Moved >= int64(from.Total()) || time.Now().After(giveUp) {
			return all, err
		}
		if left, err := dlq.ReadDepth(ctx, q.SQS, q.DeadLetterURL); err == nil && left.Total() == 0 {
			return all, nil
		}
		if q.pause(ctx) != nil {
			all.Status = statusCancelled // of the whole: the task that has ended was not the last
			return all, ctx.Err()
		}
	}
}

// moveOnce starts one task, or joins the one that is running, and waits for its end.
func (q *Queue) moveOnce(ctx context.Context, from, to string, rate int, progress func(Move)) (Move, error) {
	in := &sqs.StartMessageMoveTaskInput{SourceArn: &from, DestinationArn: &to}
	if rate > 0 {
		in.MaxNumberOfMessagesPerSecond = aws.Int32(int32(rate)) //nolint:gosec // at most MaxMoveRate
	}
	started, joined := "", false
	if out, err := q.SQS.StartMessageMoveTask(ctx, in); err == nil {
		started = aws.ToString(out.TaskHandle)
	} else if ctx.Err() != nil {
		return q.cancel(ctx, from, "", false) // it may have begun all the same
	} else if joined = strings.Contains(err.Error(), "already a task running"); !joined {
		return Move{}, fmt.Errorf("start to move %s: %w", q.Name(), err)
	}
	for {
		m, handle, err := q.look(ctx, from)
		if ctx.Err() != nil {
			return q.cancel(ctx, from, first(handle, started), joined)
		}
		if err != nil {
			return m, err
		}
		m.Joined = joined
		progress(m)
		switch m.Status {
		case statusRunning, statusCancelling:
		case statusFailed:
			return m, fmt.Errorf("move %s: %s", q.Name(), m.Problem)
		default:
			return m, nil
		}
		started = first(handle, started)
		if q.pause(ctx) != nil {
			return q.cancel(ctx, from, started, joined)
		}
	}
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// look asks for the newest task of the dead-letter queue; its handle is known only while it runs.
func (q *Queue) look(ctx context.Context, arn string) (Move, string, error) {
	m := Move{Queue: q.Name(), Status: statusUnknown}
	out, err := q.SQS.ListMessageMoveTasks(ctx, &sqs.ListMessageMoveTasksInput{SourceArn: &arn, MaxResults: aws.Int32(1)})
	if err != nil {
		return m, "", fmt.Errorf("look at the move of %s: %w", q.Name(), err)
	}
	if len(out.Results) == 0 {
		return m, "", fmt.Errorf("look at the move of %s: %w", q.Name(), errNoMove)
	}
	t := out.Results[0]
	m.Status, m.Moved, m.ToMove = aws.ToString(t.Status), t.ApproximateNumberOfMessagesMoved, aws.ToInt64(t.ApproximateNumberOfMessagesToMove)
	m.Problem = aws.ToString(t.FailureReason)
	return m, aws.ToString(t.TaskHandle), nil
}

func (q *Queue) cancel(ctx context.Context, arn, handle string, joined bool) (Move, error) {
	why := ctx.Err()
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer stop()
	if handle == "" { // nothing has told of it yet
		m, running, err := q.look(ctx, arn)
		switch {
		case errors.Is(err, errNoMove), err == nil && m.Status != statusRunning: // that was an earlier one
			return Move{Queue: q.Name(), Status: statusCancelled}, why
		case err != nil:
			return m, q.perhapsMoving(arn, err)
		}
		handle = running
	}
	out, err := q.SQS.CancelMessageMoveTask(ctx, &sqs.CancelMessageMoveTaskInput{TaskHandle: &handle})
	m, _, lookErr := q.look(ctx, arn)
	m.Joined = joined
	var ended *types.ResourceNotFoundException
	switch {
	case err == nil:
		m.Status = statusCancelled
		m.Moved = max(m.Moved, out.ApproximateNumberOfMessagesMoved)
		return m, why
	case errors.As(err, &ended) || lookErr == nil && m.Status != statusRunning:
		return m, errors.Join(why, lookErr) // it ended by itself just then
	case lookErr != nil:
		return m, q.perhapsMoving(arn, err)
	}
	// What SQS says stands in the text alone, so that nobody explains it in the place of this.
	return m, fmt.Errorf("the move of %s could not be cancelled and goes on: %s", q.Name(), err.Error())
}

// perhapsMoving is for what was asked to move, or to stop, and nothing was heard of it.
func (q *Queue) perhapsMoving(arn string, err error) error {
	return fmt.Errorf("the move of %s may go on: aws sqs list-message-move-tasks --source-arn %s says whether it does (%s)", q.Name(), arn, err.Error())
}
