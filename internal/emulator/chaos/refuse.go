package chaos

import (
	"hash/crc32"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
)

// refuse answers in the form of the AWS JSON protocol.
func refuse(w http.ResponseWriter, status int, code, message string) {
	reply(w, status, code, struct {
		Type    string `json:"__type"`
		Message string `json:"message"`
	}{code, message})
}

// refuseTransaction says that the first write of a transaction met another transaction.
// Source: Amazon DynamoDB API Reference, "TransactWriteItems".
func refuseTransaction(w http.ResponseWriter) {
	type reason struct {
		Code    string
		Message string `json:",omitempty"`
	}
	const code = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException"
	reply(w, http.StatusBadRequest, code, struct {
		Type                string `json:"__type"`
		Message             string
		CancellationReasons []reason
	}{
		code, "Transaction cancelled, please refer cancellation reasons for specific reasons [TransactionConflict, None]",
		[]reason{{"TransactionConflict", "injected: transaction is ongoing for the item"}, {"None", ""}},
	})
}

// refuseEntries answers a batch call to SQS: nothing of it took effect, and every entry says so.
func (x *exchange) refuseEntries(w http.ResponseWriter) {
	var asked struct {
		Entries []struct {
			ID string `json:"Id"`
		}
	}
	_ = json.UnmarshalRead(x.r.Body, &asked) // then there are none
	type failure struct {
		ID            string `json:"Id"`
		Code, Message string
		SenderFault   bool
	}
	var failed []failure
	for _, e := range asked.Entries {
		failed = append(failed, failure{ID: e.ID, Code: "InternalError", Message: "injected"})
	}
	reply(w, http.StatusOK, "", struct{ Failed []failure }{failed})
}

func reply(w http.ResponseWriter, status int, code string, body any) {
	text, err := json.Marshal(body)
	if err != nil { // strings always encode
		panic(err)
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE(text)), 10))
	if code != "" {
		w.Header().Set("X-Amzn-Errortype", code)
	}
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client is gone
}
