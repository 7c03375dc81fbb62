package checkpoint

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/go-json-experiment/json/jsontext"
)

// packed is a step's data as the table holds it: in one attribute, as text or, when that pays, as gzip;
// or, when it would not fit one item, as gzip in several.
type packed struct {
	inline types.AttributeValue // nil: see parts
	parts  [][]byte
}

func pack(data jsontext.Value) (packed, error) {
	plain := packed{inline: &types.AttributeValueMemberS{Value: string(data)}}
	if len(data) <= compressFrom {
		return plain, nil
	}
	var buf bytes.Buffer
	zip := gzip.NewWriter(&buf)
	// Neither call can fail: the writer is a buffer.
	_, _ = zip.Write(data)
	_ = zip.Close()
	zipped := buf.Bytes()
	switch {
	case len(zipped) > MaxStepBytes:
		return packed{}, ErrTooLarge
	case len(data) <= maxInline && len(zipped) > len(data)*9/10:
		return plain, nil
	case len(zipped) <= maxInline:
		return packed{inline: &types.AttributeValueMemberB{Value: zipped}}, nil
	}
	var p packed
	for len(zipped) > 0 {
		n := min(len(zipped), maxInline)
		p.parts = append(p.parts, zipped[:n])
		zipped = zipped[n:]
	}
	return p, nil
}

// unpack is the inverse of pack, for the checkpoint n of a thread.
func (s *Store) unpack(ctx context.Context, thread string, n uint64, inline types.AttributeValue, parts int) (jsontext.Value, error) {
	switch v := inline.(type) {
	case *types.AttributeValueMemberS:
		return jsontext.Value(v.Value), nil
	case *types.AttributeValueMemberB:
		return unzip(v.Value)
	}
	if parts == 0 {
		return nil, fmt.Errorf("checkpoint %d of thread %s has no data", n, thread)
	}
	zipped, err := s.parts(ctx, thread, n, parts)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %d of thread %s: %w", n, thread, err)
	}
	return unzip(zipped)
}

func (s *Store) parts(ctx context.Context, thread string, n uint64, want int) ([]byte, error) {
	first, last := dataSK(n, 0), dataSK(n, want-1)
	expr, err := expression.NewBuilder().WithKeyCondition(
		expression.Key("pk").Equal(expression.Value(threadPK(thread))).
			And(expression.Key("sk").Between(expression.Value(first), expression.Value(last)))).Build()
	if err != nil {
		return nil, err
	}
	var zipped []byte
	found := 0
	pages := dynamodb.NewQueryPaginator(s.api, &dynamodb.QueryInput{
		TableName: &s.table, ConsistentRead: aws.Bool(true), KeyConditionExpression: expr.KeyCondition(),
		ExpressionAttributeNames: expr.Names(), ExpressionAttributeValues: expr.Values(),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, it := range page.Items {
			part, ok := it["data"].(*types.AttributeValueMemberB)
			if !ok {
				return nil, errors.New("a part of its data is not binary")
			}
			zipped = append(zipped, part.Value...)
			found++
		}
	}
	if found != want {
		return nil, fmt.Errorf("%d of its %d parts are left", found, want)
	}
	return zipped, nil
}

func unzip(zipped []byte) (jsontext.Value, error) {
	r, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		return nil, fmt.Errorf("decompress step data: %w", err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("decompress step data: %w", err)
	}
	return data, nil
}
