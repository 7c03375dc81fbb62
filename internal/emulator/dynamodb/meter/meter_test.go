package meter_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"agentworker/internal/emulator/dynamodb/dynamodbtest"
	"agentworker/internal/emulator/dynamodb/meter"
)

func TestMain(m *testing.M) { dynamodbtest.Main(m) }

func TestCounts(t *testing.T) {
	t.Parallel()
	table := dynamodbtest.Table(t, dynamodbtest.New(t))
	m, client := start(t, dynamodbtest.Endpoint(t))
	key := func(sk string) map[string]types.AttributeValue {
		return map[string]types.AttributeValue{
			"pk": &types.AttributeValueMemberS{Value: "p"}, "sk": &types.AttributeValueMemberS{Value: sk},
		}
	}
	item := key("big")
	item["data"] = &types.AttributeValueMemberS{Value: strings.Repeat("x", 5000)}

	for _, tt := range []struct {
		name       string
		do         func() error
		operation  string
		written    [2]int // at least, at most
		writeUnits float64
		readUnits  float64
	}{
		{"an item of 5 KB", func() error {
			_, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: item})
			return err
		}, "PutItem", [2]int{5000, 5300}, 5, 0},
		{"two small items in a transaction", func() error {
			_, err := client.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
				{Put: &types.Put{TableName: &table, Item: key("a")}}, {Put: &types.Put{TableName: &table, Item: key("b")}},
			}})
			return err
		}, "TransactWriteItems", [2]int{100, 600}, 4, 0},
		{"a consistent read of 5 KB", func() error {
			_, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &table, Key: key("big"), ConsistentRead: aws.Bool(true)})
			return err
		}, "GetItem", [2]int{0, 0}, 0, 2},
	} {
		got := m.Measure(func() {
			if err := tt.do(); err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		})
		if want := map[string]int{tt.operation: 1}; !maps.Equal(got.Requests, want) || got.Total() != 1 {
			t.Errorf("%s: requests are %v, want %v", tt.name, got.Requests, want)
		}
		if got.Written < tt.written[0] || got.Written > tt.written[1] {
			t.Errorf("%s: %d bytes written, want %d to %d", tt.name, got.Written, tt.written[0], tt.written[1])
		}
		if got.WriteUnits != tt.writeUnits || got.ReadUnits != tt.readUnits {
			t.Errorf("%s: %v write and %v read units, want %v and %v", tt.name, got.WriteUnits, got.ReadUnits, tt.writeUnits, tt.readUnits)
		}
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	m, client := start(t, dynamodbtest.Endpoint(t))
	m.Delay(30 * time.Millisecond)
	began := time.Now()
	if _, err := client.ListTables(t.Context(), &dynamodb.ListTablesInput{}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 30*time.Millisecond {
		t.Errorf("a request took %v, want 30ms at least", took)
	}
}

func TestNoBackend(t *testing.T) {
	t.Parallel()
	m, client := start(t, "http://127.0.0.1:1")
	got := m.Measure(func() {
		if _, err := client.ListTables(t.Context(), &dynamodb.ListTablesInput{}); err == nil {
			t.Error("got no error, want one")
		}
	})
	if got.Total() != 0 {
		t.Errorf("counted %v, want nothing", got.Requests)
	}
}

func start(t *testing.T, backend string) (*meter.Meter, *dynamodb.Client) {
	t.Helper()
	m, err := meter.Listen(t.Context(), backend)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m, dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(m.URL()), HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""), RetryMaxAttempts: 1,
	})
}
