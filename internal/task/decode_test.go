package task_test

import (
	"fmt"
	"strings"
	"testing"

	"agentworker/internal/task"
)

const messageID = "5fea7756-0ea4-451a-a703-a558b933e274"

// Where a decoded message's id comes from.
const (
	own      = "own"      // the body's task_id
	made     = "made"     // made of the message, in the thread that the body names or implies
	newOne   = "new"      // made of the message, in a thread made of it too
	unparsed = "unparsed" // made of the message, in the thread of what is no task
)

// Case: non-JSON body
func TestDecode(t *testing.T) {
	t.Parallel()
	const id = "th-1." + ulidA
	long := strings.Repeat("x", 300)
	tests := map[string]struct {
		body       string
		wantID     string
		wantThread string // of own and made
		wantCode   string // "": no error
		wantText   string // part of the error
	}{
		// Messages of other programs, without a task_id.
		"query":                      {`{"task":"rag_query","question":"什么是 LangGraph？"}`, newOne, "", "", ""},
		"query in a thread":          {`{"task":"rag_query","thread_id":"th-1","question":"什么是 LangGraph？"}`, made, "th-1", "", ""},
		"ticket":                     {`{"task":"update_ticket","ticket_id":"TK-1001","status":"closed"}`, made, "ticket-TK-1001", "", ""},
		"ticket in its thread":       {`{"task":"update_ticket","thread_id":"ticket-TK-1","ticket_id":"TK-1","status":"closed"}`, made, "ticket-TK-1", "", ""},
		"any order and white space":  {" {\n\"question\" : \"x\" ,\t\"task\":\"rag_query\" } \r\n", newOne, "", "", ""},
		"escaped names":              {`{"t\u0061sk":"rag_query","thread\u005fid":"th-1","question":"x"}`, made, "th-1", "", ""},
		"names in another case":      {`{"task":"rag_query","thread_id":"th-1","THREAD_ID":"th-2","Question":"y","question":"x","TASK_ID":5}`, made, "th-1", "", ""},
		"question in another case":   {`{"task":"rag_query","Question":"x"}`, unparsed, "", task.CodeInvalidField, "question must not be empty"},
		"unknown fields are ignored": {`{"task":"rag_query","question":"x","x":{"y":[1e400,null]}}`, newOne, "", "", ""},

		// With a task_id.
		"own id":                  {`{"task":"rag_query","task_id":"` + id + `","question":"x"}`, own, "th-1", "", ""},
		"own id and thread":       {`{"task":"rag_query","task_id":"` + id + `","thread_id":"th-1","question":"x"}`, own, "th-1", "", ""},
		"id and thread disagree":  {`{"task":"rag_query","task_id":"` + id + `","thread_id":"th-2","question":"x"}`, own, "th-1", task.CodeInvalidField, "task_id must begin with the thread_id"},
		"thread before the id":    {`{"thread_id":"th-2","task_id":"` + id + `","task":"rag_query","question":"x"}`, own, "th-1", task.CodeInvalidField, "task_id must begin with the thread_id"},
		"id of another ticket":    {`{"task":"update_ticket","task_id":"ticket-TK-2.` + ulidA + `","ticket_id":"TK-1","status":"closed"}`, own, "ticket-TK-2", task.CodeInvalidField, `thread_id must be "ticket-TK-1"`},
		"own id, bad field":       {`{"task":"rag_query","task_id":"` + id + `"}`, own, "th-1", task.CodeInvalidField, "question must not be empty"},
		"own id, bad thread":      {`{"task":"rag_query","task_id":"` + id + `","thread_id":"a#b","question":"x"}`, own, "th-1", task.CodeInvalidField, "thread_id must consist of"},
		"own id, thread a number": {`{"task":"rag_query","task_id":"` + id + `","thread_id":5,"question":"x"}`, own, "th-1", task.CodeInvalidField, "thread_id must be a string"},
		"own id, no task":         {`{"task_id":"` + id + `"}`, own, "th-1", task.CodeInvalidField, "task must be a task type"},
		"id in lower case":        {`{"task":"rag_query","task_id":"` + strings.ToLower(id) + `","thread_id":"th-1","question":"x"}`, unparsed, "", task.CodeInvalidField, "task_id is not one"},
		"id a number":             {`{"task":"rag_query","task_id":5,"question":"x"}`, unparsed, "", task.CodeInvalidField, "task_id must be a string"},
		"id null":                 {`{"task":"rag_query","task_id":null,"question":"x"}`, unparsed, "", task.CodeInvalidField, "task_id must be a string"},
		"id empty":                {`{"task":"rag_query","task_id":"","question":"x"}`, unparsed, "", task.CodeInvalidField, "task_id is not one"},

		// Types.
		"unknown type":              {`{"task":"order_pizza"}`, unparsed, "", task.CodeUnknownTask, `task "order_pizza" is not one of [any careless`},
		"unknown type in a thread":  {`{"task":"order_pizza","thread_id":"th-1"}`, made, "th-1", task.CodeUnknownTask, `"order_pizza"`},
		"unknown type, own id":      {`{"task":"order_pizza","task_id":"` + id + `"}`, own, "th-1", task.CodeUnknownTask, `"order_pizza"`},
		"type in another case":      {`{"task":"RAG_QUERY","question":"x"}`, unparsed, "", task.CodeUnknownTask, `"RAG_QUERY"`},
		"no type":                   {`{"question":"x"}`, unparsed, "", task.CodeInvalidField, "task must be a task type"},
		"empty type":                {`{"task":"","question":"x"}`, unparsed, "", task.CodeInvalidField, "task must be a task type"},
		"type a number":             {`{"task":5}`, unparsed, "", task.CodeInvalidField, "task must be a string"},
		"type null":                 {`{"task":null}`, unparsed, "", task.CodeInvalidField, "task must be a string"},
		"name of type is not whole": {`{"task":"` + long + `"}`, unparsed, "", task.CodeUnknownTask, "xx…\" is not one of"},
		"empty object":              {`{}`, unparsed, "", task.CodeInvalidField, "task must be a task type"},

		// Fields.
		"field of wrong type":   {`{"task":"rag_query","question":["secret"]}`, unparsed, "", task.CodeInvalidField, "question must be a string"},
		"number out of range":   {`{"task":"rag_query","question":"x","topics":300}`, unparsed, "", task.CodeInvalidField, "topics must be a number in range (int8)"},
		"number as text":        {`{"task":"rag_query","question":"x","topics":"3"}`, unparsed, "", task.CodeInvalidField, "topics must be a number"},
		"fraction":              {`{"task":"rag_query","question":"x","topics":1.5}`, unparsed, "", task.CodeInvalidField, "topics must be a number"},
		"boolean as text":       {`{"task":"rag_query","question":"x","deep":"yes"}`, unparsed, "", task.CodeInvalidField, "deep must be true or false"},
		"list as text":          {`{"task":"rag_query","question":"x","Tags":"a"}`, unparsed, "", task.CodeInvalidField, "Tags must be a list"},
		"object as list":        {`{"task":"rag_query","question":"x","filter":[]}`, unparsed, "", task.CodeInvalidField, "filter must be an object"},
		"deeper field":          {`{"task":"rag_query","question":"x","filter":{"lang":1}}`, unparsed, "", task.CodeInvalidField, "lang must be a string"},
		"no time":               {`{"task":"rag_query","question":"x","since":"yesterday"}`, unparsed, "", task.CodeInvalidField, "since must be a time such as"},
		"every field at once":   {`{"task":"rag_query","topics":-1}`, unparsed, "", task.CodeInvalidField, "question must not be empty; topics must not be negative"},
		"members at once":       {`{"task":5,"task_id":5,"thread_id":5}`, unparsed, "", task.CodeInvalidField, "task must be a string; task_id must be a string; thread_id must be a string"},
		"no type among others":  {`{"thread_id":5}`, unparsed, "", task.CodeInvalidField, "thread_id must be a string; task must be a task type"},
		"ticket without id":     {`{"task":"update_ticket","status":"closed"}`, unparsed, "", task.CodeInvalidField, "ticket_id must not be empty"},
		"another ticket thread": {`{"task":"update_ticket","thread_id":"th-1","ticket_id":"TK-1","status":"closed"}`, unparsed, "", task.CodeInvalidField, `thread_id must be "ticket-TK-1" or left out`},
		"careless thread":       {`{"task":"careless","value":"a b#"}`, unparsed, "", task.CodeInvalidField, "thread_id follows from the other fields and must consist of"},

		// Hostile threads.
		"thread with hash":     {`{"task":"rag_query","thread_id":"a#b","question":"x"}`, unparsed, "", task.CodeInvalidField, "thread_id must consist of"},
		"thread as path":       {`{"task":"rag_query","thread_id":"../x","question":"x"}`, unparsed, "", task.CodeInvalidField, "thread_id must consist of"},
		"long thread":          {`{"task":"rag_query","thread_id":"` + long + `","question":"x"}`, unparsed, "", task.CodeInvalidField, "thread_id must be at most 100 characters long, not 300"},
		"Chinese thread":       {`{"task":"rag_query","thread_id":"线程","question":"x"}`, unparsed, "", task.CodeInvalidField, "thread_id must consist of"},
		"empty thread":         {`{"task":"rag_query","thread_id":"","question":"x"}`, unparsed, "", task.CodeInvalidField, "thread_id must not be empty"},
		"thread with NUL":      {`{"task":"rag_query","thread_id":"a\u0000","question":"x"}`, unparsed, "", task.CodeInvalidField, "thread_id must consist of"},
		"thread with line end": {`{"task":"rag_query","thread_id":"a\n","question":"x"}`, unparsed, "", task.CodeInvalidField, "thread_id must consist of"},

		// What is no JSON object.
		"plain text":            {"hello", unparsed, "", task.CodeMalformed, "is not valid JSON"},
		"secret text":           {"secret", unparsed, "", task.CodeMalformed, "is not valid JSON"},
		"empty":                 {"", unparsed, "", task.CodeMalformed, "is not valid JSON"},
		"white space":           {" \n", unparsed, "", task.CodeMalformed, "is not valid JSON"},
		"null":                  {"null", unparsed, "", task.CodeMalformed, "must be a JSON object"},
		"true":                  {"true", unparsed, "", task.CodeMalformed, "must be a JSON object"},
		"number":                {"1e400", unparsed, "", task.CodeMalformed, "must be a JSON object"},
		"string":                {`"secret"`, unparsed, "", task.CodeMalformed, "must be a JSON object"},
		"array":                 {`[{"task":"rag_query"}]`, unparsed, "", task.CodeMalformed, "must be a JSON object"},
		"two scalars":           {`1 2`, unparsed, "", task.CodeMalformed, "is not valid JSON"},
		"cut":                   {`{"task":"rag_query","question":"sec`, unparsed, "", task.CodeMalformed, "is not valid JSON"},
		"cut after a name":      {`{"task"`, unparsed, "", task.CodeMalformed, "is not valid JSON"},
		"comma too many":        {`{"task":"rag_query",}`, unparsed, "", task.CodeMalformed, "is not valid JSON"},
		"trailing text":         {`{"task":"rag_query","question":"x"} secret`, unparsed, "", task.CodeMalformed, "is not valid JSON at byte 35"},
		"two objects":           {`{"task":"rag_query","question":"x"}{}`, unparsed, "", task.CodeMalformed, "is not valid JSON"},
		"duplicate thread":      {`{"task":"rag_query","thread_id":"a","thread_id":"b","question":"x"}`, unparsed, "", task.CodeMalformed, "names must be unique"},
		"duplicate id":          {`{"task":"rag_query","task_id":"` + id + `","task_id":"` + id + `","question":"x"}`, unparsed, "", task.CodeMalformed, "names must be unique"},
		"duplicate by escape":   {`{"task":"rag_query","question":"x","qu\u0065stion":"y"}`, unparsed, "", task.CodeMalformed, "names must be unique"},
		"duplicate deep inside": {`{"task":"rag_query","question":"x","y":[{"a":1,"a":2}]}`, unparsed, "", task.CodeMalformed, "names must be unique"},
		"invalid UTF-8":         {"{\"task\":\"rag_query\",\"question\":\"\xff\"}", unparsed, "", task.CodeMalformed, "valid UTF-8"},
		"half a surrogate pair": {`{"task":"rag_query","question":"\ud800"}`, unparsed, "", task.CodeMalformed, "valid UTF-8"},
		"byte order mark":       {"\uFEFF{}", unparsed, "", task.CodeMalformed, "is not valid JSON"},
		"base64":                {"eyJ0YXNrIjoicmFnX3F1ZXJ5In0=", unparsed, "", task.CodeMalformed, "is not valid JSON"},
		"very deep":             {strings.Repeat(`{"a":`, 100_000), unparsed, "", task.CodeMalformed, "is not valid JSON"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegistry(t)
			m, err := r.Decode([]byte(tt.body), messageID, noon)

			made := task.IDFromMessage("", messageID, noon).ULID()
			want := map[string]task.ID{
				own:      task.ID(tt.wantThread + "." + ulidA),
				"made":   task.ID(tt.wantThread + "." + made),
				newOne:   task.ID("th-0000000000" + made[10:] + "." + made),
				unparsed: task.ID("unparsed." + made),
			}[tt.wantID]
			if m.ID != want {
				t.Errorf("id: got %q, want %q", m.ID, want)
			}
			if m.Thread != want.Thread() {
				t.Errorf("thread: got %q, want that of the id, %q", m.Thread, want.Thread())
			}
			if again, _ := r.Decode([]byte(tt.body), messageID, noon); again.ID != m.ID {
				t.Errorf("redelivered: got id %q, want %q", again.ID, m.ID)
			}
			if tt.wantCode == "" {
				if err != nil {
					t.Errorf("got %v, want no error", err)
				}
				return
			}
			if err == nil {
				t.Fatalf("got no error, want %s", tt.wantCode)
			}
			failure := task.FailureOf(err)
			if failure.Code != tt.wantCode || !strings.Contains(err.Error(), tt.wantText) {
				t.Errorf("got %+v, want %s with %q", failure, tt.wantCode, tt.wantText)
			}
			if !task.IsPermanent(err) {
				t.Error("the error is not permanent")
			}
			if strings.Contains(err.Error(), "sec") {
				t.Errorf("the error quotes content: %v", err)
			}
			if len(err.Error()) > task.MaxReasonLength {
				t.Errorf("the error is %d bytes long, want at most %d", len(err.Error()), task.MaxReasonLength)
			}
		})
	}
}

// A faulty check must not cost the other messages of its batch.
func TestPanickingCheckFailsItsMessageAlone(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]task.ID{
		`{"task":"panicking"}`:                                task.IDFromMessage(task.Unparsed, messageID, noon),
		`{"task":"panicking","task_id":"th-1.` + ulidA + `"}`: "th-1." + ulidA,
	} {
		m, err := newRegistry(t).Decode([]byte(body), messageID, noon)
		if err == nil || task.FailureOf(err).Code != task.CodePanic || !task.IsPermanent(err) {
			t.Errorf("%s: got %v, want a permanent %s", body, err, task.CodePanic)
		}
		if m.ID != want || m.Thread != want.Thread() {
			t.Errorf("%s: got id %q, thread %q, want %q", body, m.ID, m.Thread, want)
		}
	}
}

func TestDecodeKeepsFieldsInOrder(t *testing.T) {
	t.Parallel()
	m, err := newRegistry(t).Decode([]byte(`{"z":1,"task":"any","b":[ 1, 2 ],"thread_id":"t","a":"\u0041"}`), messageID, noon)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{z 1} {b [ 1, 2 ]} {a "\u0041"}]`
	if got := fmt.Sprintf("%s", m.Fields); got != want {
		t.Errorf("fields: got %s, want %s", got, want)
	}
	if m.Task != "any" {
		t.Errorf("task: got %q, want %q", m.Task, "any")
	}
}
