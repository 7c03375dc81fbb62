package checkpoint

import (
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// written are expressions as DynamoDB reads them. Those that every task needs are written out: to build them took more
// processor time than all else that this package does for a task. The words that DynamoDB reserves are names with a #.
// Source: Amazon DynamoDB Developer Guide, "Reserved words in DynamoDB".
type written struct {
	condition, update string
	names             map[string]string
	values            item
}

const notThere = "attribute_not_exists(pk)"

func text[S ~string](s S) types.AttributeValue {
	return &types.AttributeValueMemberS{Value: string(s)}
}

func signed[N int | int64](n N) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(int64(n), 10)}
}

func unsigned(n uint64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatUint(n, 10)}
}

func list(items ...types.AttributeValue) types.AttributeValue {
	return &types.AttributeValueMemberL{Value: items}
}

func object(fields item) types.AttributeValue { return &types.AttributeValueMemberM{Value: fields} }
