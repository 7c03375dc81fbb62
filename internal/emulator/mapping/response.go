package mapping

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// idSet holds message ids.
type idSet map[string]bool

func (s idSet) in(batch []message) []string {
	return ids(only(batch, s))
}

// failures reads which messages the function says have failed. An error means that the whole batch has.
//
// The table is Lambda's: no answer, null, an object without the list, a list that is null or empty are success. A list
// entry without the right key, with an empty or null id, or with an id that is not in the batch fails the whole batch, as
// does what is no JSON object. Keys are case-sensitive, so that a misspelt batchItemFailures is an object without the list,
// and deletes everything. Repeated ids count once, repeated keys are no JSON. Source: AWS Lambda Developer Guide, "Handling errors for an SQS event source in Lambda", success
// and failure conditions.
func (m *Mapping) failures(payload []byte, batch []message) (idSet, error) {
	if !m.config.ReportBatchItemFailures {
		return nil, nil
	}
	if len(bytes.TrimSpace(payload)) == 0 {
		return nil, nil
	}
	var response *struct {
		BatchItemFailures []*struct {
			ItemIdentifier *string `json:"itemIdentifier"`
		} `json:"batchItemFailures"`
	}
	if err := json.Unmarshal(payload, &response, jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, fmt.Errorf("the answer is not a batch response: %w", err)
	}
	if response == nil {
		return nil, nil
	}
	known := idSet{}
	for _, msg := range batch {
		known[msg.id] = true
	}
	failed := idSet{}
	for i, item := range response.BatchItemFailures {
		switch {
		case item == nil || item.ItemIdentifier == nil:
			return nil, fmt.Errorf("batchItemFailures[%d] has no itemIdentifier", i)
		case *item.ItemIdentifier == "":
			return nil, fmt.Errorf("batchItemFailures[%d] has an empty itemIdentifier", i)
		case !known[*item.ItemIdentifier]:
			return nil, fmt.Errorf("batchItemFailures[%d]: %q is not the id of a message of this batch", i, *item.ItemIdentifier)
		}
		failed[*item.ItemIdentifier] = true
	}
	return failed, nil
}
