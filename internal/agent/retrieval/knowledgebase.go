//go:build !slim || kb

package retrieval

import (
	"context"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	kb "github.com/aws/aws-sdk-go-v2/service/bedrockagentruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockagentruntime/document"
	"github.com/aws/aws-sdk-go-v2/service/bedrockagentruntime/types"
	smithydocument "github.com/aws/smithy-go/document"

	"agentworker/internal/agent"
	"agentworker/internal/agent/upstream"
	"agentworker/internal/awsclient"
)

// maxKnowledgeBaseQuery is the longest query, in characters.
// Source: AWS General Reference, "Amazon Bedrock endpoints and quotas".
const maxKnowledgeBaseQuery = 1_000

// knowledgeBaseTimeout is how long the wait for an answer may be; a search takes a second or two.
const knowledgeBaseTimeout = 15 * time.Second

// What a knowledge base says of a passage besides its text.
// Source: Amazon Bedrock User Guide, "Query a knowledge base and retrieve data".
const (
	metadataSource = "x-amz-bedrock-kb-source-uri"
	metadataPage   = "x-amz-bedrock-kb-document-page-number"
)

// KnowledgeBase retrieves from a knowledge base of Amazon Bedrock. It makes one request a call, without retries. It is safe
// for concurrent use.
type KnowledgeBase struct {
	id     string
	client func() *kb.Client
}

// NewKnowledgeBase makes the client at the first call.
func NewKnowledgeBase(c aws.Config, id string) *KnowledgeBase {
	return &KnowledgeBase{id: id, client: sync.OnceValue(func() *kb.Client {
		return kb.NewFromConfig(c, func(o *kb.Options) {
			o.Retryer = aws.NopRetryer{}
			o.HTTPClient = awsclient.Waiting(c.HTTPClient, knowledgeBaseTimeout)
		})
	})}
}

// Retrieve implements [agent.Retriever]. A passage's document is its address, and its number that of its page where the
// knowledge base knows pages, and else its place among the results. Of a long query the end is searched for.
func (b *KnowledgeBase) Retrieve(ctx context.Context, query string, k int) ([]agent.Passage, error) {
	if query = strings.TrimSpace(query); query == "" || k <= 0 {
		return []agent.Passage{}, nil
	}
	if runes := []rune(query); len(runes) > maxKnowledgeBaseQuery {
		query = string(runes[len(runes)-maxKnowledgeBaseQuery:])
	}
	out, err := b.client().Retrieve(ctx, &kb.RetrieveInput{
		KnowledgeBaseId: &b.id,
		RetrievalQuery:  &types.KnowledgeBaseQuery{Text: &query},
		RetrievalConfiguration: &types.KnowledgeBaseRetrievalConfiguration{
			VectorSearchConfiguration: &types.KnowledgeBaseVectorSearchConfiguration{NumberOfResults: aws.Int32(int32(min(k, 100)))},
		},
	})
	if err != nil {
		return nil, service.AWS(ctx, err)
	}
	if out.GuardrailAction == types.GuadrailActionIntervened {
		return nil, service.Fail(upstream.Refused, "a guardrail has intervened")
	}
	passages := []agent.Passage{}
	for _, r := range out.RetrievalResults {
		if r.Content == nil || strings.TrimSpace(aws.ToString(r.Content.Text)) == "" || len(passages) == k {
			continue
		}
		document := address(r)
		number := len(passages) + 1
		if page := int(metadataNumber(r.Metadata[metadataPage])); page > 0 {
			number = page
		}
		passages = append(passages, agent.Passage{
			Document: document, Number: number, Title: path.Base(document),
			Text: strings.ToValidUTF8(*r.Content.Text, "\uFFFD"),
		})
	}
	return passages, nil
}

// address is where a result's document lies.
func address(r types.KnowledgeBaseRetrievalResult) string {
	if l := r.Location; l != nil {
		switch {
		case l.S3Location != nil:
			return aws.ToString(l.S3Location.Uri)
		case l.WebLocation != nil:
			return aws.ToString(l.WebLocation.Url)
		case l.ConfluenceLocation != nil:
			return aws.ToString(l.ConfluenceLocation.Url)
		case l.SalesforceLocation != nil:
			return aws.ToString(l.SalesforceLocation.Url)
		case l.SharePointLocation != nil:
			return aws.ToString(l.SharePointLocation.Url)
		case l.KendraDocumentLocation != nil:
			return aws.ToString(l.KendraDocumentLocation.Uri)
		case l.CustomDocumentLocation != nil:
			return aws.ToString(l.CustomDocumentLocation.Id)
		}
	}
	var source string
	if d := r.Metadata[metadataSource]; d != nil && d.UnmarshalSmithyDocument(&source) == nil && source != "" {
		return source
	}
	return "unknown"
}

func metadataNumber(d document.Interface) float64 {
	var n smithydocument.Number
	if d == nil || d.UnmarshalSmithyDocument(&n) != nil {
		return 0
	}
	f, err := n.Float64()
	if err != nil {
		return 0
	}
	return f
}
