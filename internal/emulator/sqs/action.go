package sqs

import (
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"agentworker/internal/emulator/sqs/engine"
)

// call is one request.
type call struct {
	*Server
	http *http.Request
}

// action decodes a request, runs it and returns what is sent back.
type action func(c *call, body []byte) (any, error)

// act makes an action of a function over its request and answer types.
func act[In, Out any](run func(*call, In) (Out, error)) action {
	return func(c *call, body []byte) (any, error) {
		var in In
		if len(body) > 0 {
			if err := json.Unmarshal(body, &in); err != nil {
				return nil, refuse(serializationBad, "The request is not valid: %v", err)
			}
		}
		return run(c, in)
	}
}

// actions is the whole API. Source: Amazon SQS API Reference, "Actions".
func actions() map[string]action {
	return map[string]action{
		"CreateQueue":                  act((*call).createQueue),
		"GetQueueUrl":                  act((*call).getQueueURL),
		"ListQueues":                   act((*call).listQueues),
		"GetQueueAttributes":           act((*call).getQueueAttributes),
		"SetQueueAttributes":           act((*call).setQueueAttributes),
		"DeleteQueue":                  act((*call).deleteQueue),
		"PurgeQueue":                   act((*call).purgeQueue),
		"ListDeadLetterSourceQueues":   act((*call).listDeadLetterSourceQueues),
		"TagQueue":                     act((*call).tagQueue),
		"UntagQueue":                   act((*call).untagQueue),
		"ListQueueTags":                act((*call).listQueueTags),
		"SendMessage":                  act((*call).sendMessage),
		"SendMessageBatch":             act((*call).sendMessageBatch),
		"ReceiveMessage":               act((*call).receiveMessage),
		"DeleteMessage":                act((*call).deleteMessage),
		"DeleteMessageBatch":           act((*call).deleteMessageBatch),
		"ChangeMessageVisibility":      act((*call).changeMessageVisibility),
		"ChangeMessageVisibilityBatch": act((*call).changeMessageVisibilityBatch),
		"StartMessageMoveTask":         act((*call).startMessageMoveTask),
		"CancelMessageMoveTask":        act((*call).cancelMessageMoveTask),
		"ListMessageMoveTasks":         act((*call).listMessageMoveTasks),
	}
}

// nothing is the answer of actions that only succeed or fail.
type nothing struct{}

// queueURL is where a client finds the queue from where it stands.
func (c *call) queueURL(name string) string {
	base := c.base
	if base == "" {
		scheme := "http://"
		if c.http.TLS != nil {
			scheme = "https://"
		}
		base = scheme + c.http.Host
	}
	return base + "/" + c.account + "/" + name
}

func (c *call) queueURLs(names []string) []string {
	urls := make([]string, len(names))
	for i, name := range names {
		urls[i] = c.queueURL(name)
	}
	return urls
}

// queueName takes the name out of a queue URL. Only the path counts: a server is reached by more
// than one address.
func (c *call) queueName(url string) (string, error) {
	if url == "" {
		return "", missing("QueueUrl")
	}
	parts := strings.Split(url, "/")
	if len(parts) < 3 {
		return "", refuse(invalidAddress, "The address %s is not valid for this endpoint.", url)
	}
	if parts[len(parts)-2] != c.account {
		return "", refuse(engine.QueueDoesNotExist, "The specified queue does not exist.")
	}
	return parts[len(parts)-1], nil
}

func seconds(n int) *time.Duration {
	d := time.Duration(n) * time.Second
	return &d
}
