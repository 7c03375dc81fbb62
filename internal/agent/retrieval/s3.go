//go:build !slim || s3

package retrieval

import (
	"context"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sync/errgroup"

	"agentworker/internal/agent"
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
	pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, service.AWS(ctx, err)
		}
		for _, object := range page.Contents {
			name := strings.TrimPrefix(aws.ToString(object.Key), prefix)
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
			contents[i], err = readObject(reading, client, bucket, prefix+name)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, service.AWS(ctx, err)
	}
	for i, name := range names { // S3 lists in the order of the names
		c.add(name, contents[i])
	}
	return c.passages, nil
}

func readObject(ctx context.Context, client *s3.Client, bucket, key string) ([]byte, error) {
	out, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return nil, err
	}
	defer out.Body.Close()
	return io.ReadAll(io.LimitReader(out.Body, MaxDocumentBytes))
}
