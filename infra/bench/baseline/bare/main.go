// Command bare is a Lambda function that does nothing: what no Go function can undercut in start-up time and memory.
package main

import (
	"context"

	"github.com/aws/aws-lambda-go/lambda"
)

func main() {
	lambda.Start(func(context.Context) error { return nil })
}
