package sqs

import (
	"strings"

	"agentworker/internal/emulator/sqs/engine"
)

type startMoveRequest struct {
	SourceArn      string
	DestinationArn string
	Rate           *int `json:"MaxNumberOfMessagesPerSecond"`
}

type taskHandleAnswer struct {
	TaskHandle string
}

func (c *call) startMessageMoveTask(in startMoveRequest) (taskHandleAnswer, error) {
	if err := checkArn(in.SourceArn, "SourceArn"); err != nil {
		return taskHandleAnswer{}, err
	}
	if in.DestinationArn != "" {
		if err := checkArn(in.DestinationArn, "DestinationArn"); err != nil {
			return taskHandleAnswer{}, err
		}
	}
	rate := 0
	if in.Rate != nil {
		if rate = *in.Rate; rate < 1 || rate > engine.MaximumMoveRate {
			return taskHandleAnswer{}, invalidValue(rate, "MaxNumberOfMessagesPerSecond", "Must be between 1 and 500, if provided.")
		}
	}
	handle, err := c.engine.StartMove(in.SourceArn, in.DestinationArn, rate)
	return taskHandleAnswer{handle}, err
}

func checkArn(arn, parameter string) error {
	if arn == "" {
		return missing(parameter)
	}
	if parts := strings.Split(arn, ":"); len(parts) != 6 || parts[0] != "arn" {
		return refuse(engine.InvalidParameterValue, "You must use this format to specify the %s: "+
			"arn:<partition>:<service>:<region>:<account-id>:<resource-id>", parameter)
	}
	return nil
}

type cancelMoveRequest struct {
	TaskHandle string
}

type cancelMoveAnswer struct {
	Moved int `json:"ApproximateNumberOfMessagesMoved"`
}

func (c *call) cancelMessageMoveTask(in cancelMoveRequest) (cancelMoveAnswer, error) {
	if in.TaskHandle == "" {
		return cancelMoveAnswer{}, missing("TaskHandle")
	}
	moved, err := c.engine.CancelMove(in.TaskHandle)
	return cancelMoveAnswer{moved}, err
}

type listMovesRequest struct {
	SourceArn  string
	MaxResults *int
}

type listMovesAnswer struct {
	Results []moveAnswer
}

type moveAnswer struct {
	TaskHandle     string `json:",omitempty"`
	Status         string
	SourceArn      string
	DestinationArn string `json:",omitempty"`
	Rate           int    `json:"MaxNumberOfMessagesPerSecond,omitzero"`
	Moved          int    `json:"ApproximateNumberOfMessagesMoved"`
	ToMove         int    `json:"ApproximateNumberOfMessagesToMove"`
	FailureReason  string `json:",omitempty"`
	Started        int64  `json:"StartedTimestamp"` // milliseconds since 1970
}

func (c *call) listMessageMoveTasks(in listMovesRequest) (listMovesAnswer, error) {
	answer := listMovesAnswer{Results: []moveAnswer{}}
	if err := checkArn(in.SourceArn, "SourceArn"); err != nil {
		return answer, err
	}
	limit := 1
	if in.MaxResults != nil {
		if limit = *in.MaxResults; limit < 1 || limit > 10 {
			return answer, invalidValue(limit, "MaxResults", "Must be between 1 and 10, if provided.")
		}
	}
	tasks, err := c.engine.ListMoves(in.SourceArn, limit)
	for _, t := range tasks {
		answer.Results = append(answer.Results, moveAnswer{
			TaskHandle: t.Handle, Status: t.Status, SourceArn: t.SourceArn, DestinationArn: t.Destination,
			Rate: t.Rate, Moved: t.Moved, ToMove: t.ToMove, FailureReason: t.Failure, Started: t.Started.UnixMilli(),
		})
	}
	return answer, err
}
