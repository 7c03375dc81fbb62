package sqs

import (
	"errors"
	"regexp"

	"agentworker/internal/emulator/sqs/engine"
)

const maximumEntries = 10

var entryID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// failedEntry is an entry of a batch that was refused while the others went on.
type failedEntry struct {
	ID          string `json:"Id"`
	SenderFault bool
	Code        string
	Message     string
}

func failed(id string, err *engine.Error) failedEntry {
	code := wire(err.Code).query
	return failedEntry{ID: id, SenderFault: true, Code: code, Message: err.Message}
}

// batch checks what holds for every batch: the queue, the number of entries and their ids.
func (c *call) batch(url string, n int, id func(int) string) (name string, err error) {
	name, err = c.queueName(url)
	if err != nil {
		return "", err
	}
	if err := c.engine.QueueExists(name); err != nil {
		return "", err
	}
	if n == 0 {
		return "", refuse(emptyBatch, "There should be at least one entry in the request.")
	}
	if n > maximumEntries {
		return "", refuse(tooManyEntries, "Maximum number of entries per request are %d. You have sent %d.", maximumEntries, n)
	}
	seen := map[string]bool{}
	for i := range n {
		entry := id(i)
		if !entryID.MatchString(entry) {
			return "", refuse(invalidEntryID, "A batch entry id can only contain alphanumeric characters, hyphens and "+
				"underscores. It can be at most 80 letters long.")
		}
		if seen[entry] {
			return "", refuse(idsNotDistinct, "Id %s repeated.", entry)
		}
		seen[entry] = true
	}
	return name, nil
}

// inBatch: what a single send reports as a missing parameter is an invalid value in a batch, as
// recorded from the service.
func inBatch(err error) error {
	var refused *engine.Error
	if errors.As(err, &refused) && refused.Code == engine.MissingParameter {
		return refuse(engine.InvalidParameterValue, "%s", refused.Message)
	}
	return err
}

type idAnswer struct {
	ID string `json:"Id"`
}

type batchAnswer struct {
	Successful []idAnswer
	Failed     []failedEntry `json:",omitempty"`
}

// add notes the outcome of one entry.
func (a *batchAnswer) add(id string, err *engine.Error) {
	if err != nil {
		a.Failed = append(a.Failed, failed(id, err))
		return
	}
	a.Successful = append(a.Successful, idAnswer{id})
}
