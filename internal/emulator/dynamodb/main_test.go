package dynamodb_test

import (
	"testing"

	"agentworker/internal/emulator/dynamodb/dynamodbtest"
)

func TestMain(m *testing.M) { dynamodbtest.Main(m) }
