package chaos

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// request is what can be told of an AWS request by looking at it.
type request struct {
	process   string // that sent it, such as worker-3
	table     bool   // for the table, not a queue
	operation string // such as UpdateItem
	task      string // id; "": not about one task
	thread    string // "": not about one thread
	key       string // what is being done to what, for the draws
	claim     bool   // makes the sender a task's owner
	commit    bool   // writes a checkpoint
	write     bool
}

// application finds the id that lambda.Function gives each process, as the SDK sends it.
var application = regexp.MustCompile(`\bapp/([A-Za-z0-9_-]+-[0-9]+)\b`)

// maxBody is more than SQS and DynamoDB take.
const maxBody = 20 << 20

// look reads a request of one of the functions; ok is false for everybody else's. The body can be read again.
func look(r *http.Request) (q request, ok bool) {
	sender := application.FindStringSubmatch(r.UserAgent())
	service, operation, found := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if sender == nil || !found {
		return q, false
	}
	q.process, q.operation = sender[1], operation
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	r.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return q, false // the service will say so too
	}
	switch service {
	case "DynamoDB_20120810":
		q.table = true
		q.lookAtTable(body)
	case "AmazonSQS":
		q.lookAtQueue(body)
	default:
		return q, false
	}
	return q, true
}

type attributeValue struct{ S string }

type itemKey struct {
	PK attributeValue `json:"pk"`
	SK attributeValue `json:"sk"`
}

// thread is the thread in whose history the tasks lie that such an item belongs to.
func (k itemKey) thread() string {
	if ticket, ok := strings.CutPrefix(k.PK.S, "ticket#"); ok {
		return "ticket-" + ticket
	}
	thread, _ := strings.CutPrefix(k.PK.S, "thread#")
	return thread
}

// task is the id of the task whose record has this key, "" for other items.
func (k itemKey) task() string {
	thread, isThread := strings.CutPrefix(k.PK.S, "thread#")
	ulid, isRecord := strings.CutPrefix(k.SK.S, "history#")
	if !isThread || !isRecord {
		return ""
	}
	return thread + "." + ulid
}

// update is a change of an item.
type update struct {
	Key                      itemKey
	UpdateExpression         string
	ExpressionAttributeNames map[string]string
}

// mentions reports whether an attribute is part of the change, whether it is written out or stands for a name.
func (u update) mentions(attribute string) bool {
	if strings.Contains(u.UpdateExpression, attribute) {
		return true
	}
	for _, name := range u.ExpressionAttributeNames {
		if name == attribute {
			return true
		}
	}
	return false
}

func (q *request) lookAtTable(body []byte) {
	var b struct {
		update
		Item          itemKey
		TransactItems []struct{ Update *update }

		ExpressionAttributeValues map[string]attributeValue
	}
	// What does not decode is left to the table.
	_ = json.Unmarshal(body, &b, jsontext.AllowInvalidUTF8(true))
	var at itemKey
	switch q.operation {
	case "UpdateItem":
		q.write, at = true, b.Key
		// Of all updates only a claim sets these two.
		q.claim = b.mentions("lease_owner") && b.mentions("submitted_at")
	case "PutItem":
		q.write, at = true, b.Item
	case "TransactWriteItems":
		q.write = true
		if len(b.TransactItems) > 0 && b.TransactItems[0].Update != nil {
			at = b.TransactItems[0].Update.Key
			q.commit = at.task() != ""
		}
	case "GetItem":
		at = b.Key
	}
	if q.operation == "Query" {
		for _, v := range b.ExpressionAttributeValues {
			if strings.HasPrefix(v.S, "thread#") {
				at.PK = v
			}
		}
	}
	q.task, q.thread = at.task(), at.thread()
	q.key = q.operation + " " + at.PK.S + " " + at.SK.S
}

func (q *request) lookAtQueue(body []byte) {
	var b struct {
		MessageAttributes map[string]struct{ StringValue string }
	}
	_ = json.Unmarshal(body, &b, jsontext.AllowInvalidUTF8(true))
	q.task = b.MessageAttributes["task_id"].StringValue
	q.write = q.operation == "SendMessage"
	q.key = q.operation + " " + q.task
}
