// The worker of the end-to-end test: what a message's body says becomes of it.
package main

import (
	"context"
	"fmt"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
)

func main() {
	lambda.Start(func(_ context.Context, event events.SQSEvent) (events.SQSEventResponse, error) {
		var response events.SQSEventResponse
		for _, message := range event.Records {
			fmt.Println(message.Body, message.Attributes["ApproximateReceiveCount"])
			switch message.Body {
			case "fail":
				response.BatchItemFailures = append(response.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: message.MessageId})
			case "crash":
				panic("crash")
			}
		}
		return response, nil
	})
}
