package sqs_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"agentworker/internal/emulator/sqs"
)

// BenchmarkSendMessage measures whole requests from many clients, without the network.
func BenchmarkSendMessage(b *testing.B) {
	for _, durable := range []bool{false, true} {
		b.Run("durable="+strconv.FormatBool(durable), func(b *testing.B) {
			b.ReportAllocs()
			opts := sqs.Options{}
			if durable {
				opts.Dir = b.TempDir()
			}
			server, err := sqs.Open(opts)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = server.Close() })
			post := func(action, body string) {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/", strings.NewReader(body))
				r.Header.Set("X-Amz-Target", "AmazonSQS."+action)
				w := httptest.NewRecorder()
				server.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Errorf("%s = %d %s", action, w.Code, w.Body)
				}
			}
			post("CreateQueue", `{"QueueName":"q"}`)
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					post("SendMessage", `{"QueueUrl":"http://example.com/000000000000/q","MessageBody":"{\"task\":\"rag_query\"}"}`)
				}
			})
		})
	}
}
