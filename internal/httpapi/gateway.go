package httpapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/events"
	"github.com/go-json-experiment/json/jsontext"
)

// gateway is what API Gateway knows of a request and HTTP does not carry.
type gateway struct {
	caller    string
	requestID string
	encoded   bool // the body came base64-encoded
}

type gatewayKey struct{}

func gatewayOf(ctx context.Context) gateway {
	if g, ok := ctx.Value(gatewayKey{}).(*gateway); ok {
		return *g
	}
	return gateway{}
}

func gatewayCaller(r *http.Request) string        { return gatewayOf(r.Context()).caller }
func gatewayRequestID(ctx context.Context) string { return gatewayOf(ctx).requestID }
func gatewayEncoded(ctx context.Context) bool     { return gatewayOf(ctx).encoded }

// principal is who sends the request, as the authorizer has found out; "" when there is none. Subjects of
// a token are only unique with their issuer.
func principal(a *events.APIGatewayV2HTTPRequestContextAuthorizerDescription) string {
	switch {
	case a == nil:
		return ""
	case a.IAM != nil && a.IAM.UserARN != "":
		return "iam " + a.IAM.UserARN
	case a.JWT != nil && a.JWT.Claims["sub"] != "":
		return "jwt " + a.JWT.Claims["iss"] + " " + a.JWT.Claims["sub"]
	}
	return ""
}

const (
	// maxPayload is what a function can return, in its JSON form, less some room for headers.
	// Source: AWS Lambda Developer Guide, "Lambda quotas" (6 MB).
	maxPayload = 6<<20 - 16<<10
	// mayNotFit is where it pays to look: escaped, no character takes more than six bytes.
	mayNotFit = maxPayload / 6
)

// shrink compresses a body that would not fit otherwise. Lambda would turn it into an error of the
// function.
func (w *recorder) shrink(r *http.Request) error {
	size := w.body.Len()
	if size <= mayNotFit || size <= maxPayload && escapedLen(w.body.Bytes()) <= maxPayload {
		return nil
	}
	tooMuch := &problem{
		status: http.StatusNotAcceptable, code: CodeResponseTooLarge,
		detail: `The answer is too large to be given uncompressed. Ask again with "Accept-Encoding: gzip".`,
	}
	if !acceptsGzip(r.Header) {
		return tooMuch
	}
	var small bytes.Buffer
	gz := gzip.NewWriter(&small)
	// Writing to memory cannot fail.
	_, _ = gz.Write(w.body.Bytes())
	_ = gz.Close()
	if base64.StdEncoding.EncodedLen(small.Len()) > maxPayload {
		tooMuch.detail = "The answer is too large to be given, compressed as well."
		return tooMuch
	}
	w.body = small
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Add("Vary", "Accept-Encoding")
	return nil
}

// escapedLen is the length of the body as a JSON string. The encoder of aws-lambda-go also escapes what
// HTML and JavaScript would trip over.
func escapedLen(body []byte) int {
	text, err := jsontext.AppendQuote(nil, body)
	if err != nil {
		return maxPayload + 1
	}
	return len(text) + 5*(bytes.Count(text, []byte("<"))+bytes.Count(text, []byte(">"))+bytes.Count(text, []byte("&"))) +
		3*(bytes.Count(text, []byte("\u2028"))+bytes.Count(text, []byte("\u2029")))
}

func acceptsGzip(h http.Header) bool {
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		coding, params, _ := strings.Cut(part, ";")
		q := strings.ReplaceAll(params, " ", "")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") && q != "q=0" && q != "q=0.0" && q != "q=0.00" && q != "q=0.000" {
			return true
		}
	}
	return false
}
