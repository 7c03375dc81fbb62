//go:build !slim || s3

package retrieval

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"agentworker/internal/agent"
	"agentworker/internal/agent/upstream"
)

// s3Downloads is how many objects are read at once.
const s3Downloads = 8

// S3 is an index of the Markdown and text files of a bucket, below a prefix that is taken as a folder. They are read as
// [Loaded] does, within the bounds of [Read].
func S3(c aws.Config, bucket, prefix string) *Loaded {
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	return Load(func(ctx context.Context) ([]agent.Passage, error) {
		client := s3.NewFromConfig(c, func(o *s3.Options) {
			// Another endpoint than AWS's, as on a laptop, has no host name for each bucket.
			o.UsePathStyle = o.BaseEndpoint != nil
		})
		return readBucket(ctx, client, bucket, prefix)
	})
}

func readBucket(ctx context.Context, client *s3.Client, bucket, prefix string) ([]agent.Passage, error) {
	var c collection
	var names []string
	// Without the encoding one object whose key holds a control character makes the list no XML.
	// Source: Amazon S3 API Reference, "ListObjectsV2".
	pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &prefix, EncodingType: types.EncodingTypeUrl})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, service.AWS(ctx, err)
		}
		for _, object := range page.Contents {
			key := aws.ToString(object.Key)
			if page.EncodingType == types.EncodingTypeUrl {
				if key, err = url.QueryUnescape(key); err != nil {
					return nil, service.Fail(upstream.BadAnswer, "a key in its list cannot be read")
				}
			}
			name := strings.TrimPrefix(key, prefix)
			if !isText(name) || strings.HasPrefix(name, ".") || strings.Contains(name, "/.") {
				continue
			}
			if err := c.room(name, aws.ToInt64(object.Size)); err != nil {
				return nil, tooMuch(err)
			}
			names = append(names, name)
		}
	}

	contents := make([][]byte, len(names))
	g, reading := errgroup.WithContext(ctx)
	g.SetLimit(s3Downloads)
	for i, name := range names {
		g.Go(func() (err error) {
			if contents[i], err = readObject(reading, client, bucket, prefix+name); err != nil {
				return fmt.Errorf("document %q: %w", name, service.AWS(ctx, err))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i, name := range names { // S3 lists in the order of the names
		c.add(name, contents[i])
	}
	if len(c.passages) == 0 {
		// Nothing is kept of it: the next query looks again.
		return nil, service.Fail(upstream.NotFound, fmt.Sprintf("no Markdown or text file with something in it lies below s3://%s/%s", bucket, prefix))
	}
	return c.passages, nil
}

// readObject gives nothing for an object that has been deleted since it was listed.
func readObject(ctx context.Context, client *s3.Client, bucket, key string) ([]byte, error) {
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	var deleted *types.NoSuchKey
	if errors.As(err, &deleted) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer out.Body.Close()
	return io.ReadAll(io.LimitReader(out.Body, MaxDocumentBytes))
}
