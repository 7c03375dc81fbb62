package apigateway

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// event replaces the request context of the library's type, which always writes out the client certificate of mutual
// TLS; API Gateway leaves it away where there is none.
type event struct {
	events.APIGatewayV2HTTPRequest
	RequestContext requestContext `json:"requestContext"`
}

type requestContext struct {
	events.APIGatewayV2HTTPRequestContext
	Authentication *struct{} `json:"authentication,omitempty"`
}

// event is the payload of one request, in format 2.0.
func (g *Gateway) event(r *http.Request, m match, body []byte, now time.Time, id string) ([]byte, error) {
	// Others measured that an HTTP API hands the path on decoded, rawPath too, cut at a decoded question mark, while the
	// query string stays as it was sent.
	path, _, _ := strings.Cut(r.URL.Path, "?")
	text, encoded := encodeBody(r.Header.Get("Content-Type"), body)
	headers := g.headers(r, len(body))
	prefix, _, _ := strings.Cut(g.config.DomainName, ".")
	payload, err := json.Marshal(event{
		APIGatewayV2HTTPRequest: events.APIGatewayV2HTTPRequest{
			Version:               "2.0",
			RouteKey:              m.route.key,
			RawPath:               path,
			RawQueryString:        r.URL.RawQuery,
			Cookies:               cookies(r.Header),
			Headers:               headers,
			QueryStringParameters: query(r.URL.RawQuery),
			PathParameters:        m.parameters,
			Body:                  text,
			IsBase64Encoded:       encoded,
		},
		RequestContext: requestContext{APIGatewayV2HTTPRequestContext: events.APIGatewayV2HTTPRequestContext{
			RouteKey:     m.route.key,
			AccountID:    g.config.AccountID,
			Stage:        "$default",
			RequestID:    id,
			APIID:        g.config.APIID,
			DomainName:   g.config.DomainName,
			DomainPrefix: prefix,
			Time:         now.UTC().Format("02/Jan/2006:15:04:05 -0700"),
			TimeEpoch:    now.UnixMilli(),
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{
				Method:    r.Method,
				Path:      path,
				Protocol:  r.Proto,
				SourceIP:  sourceIP(r),
				UserAgent: r.UserAgent(),
			},
		}},
	}, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, fmt.Errorf("build the event: %w", err)
	}
	return payload, nil
}

// hopByHop are headers that belong to one connection (RFC 9110, 7.6.1), and Cookie, which format 2.0 has a field for.
var hopByHop = []string{
	"Connection", "Cookie", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

func (g *Gateway) headers(r *http.Request, length int) map[string]string {
	headers := map[string]string{}
	for name, values := range r.Header {
		if !slices.Contains(hopByHop, name) {
			headers[strings.ToLower(name)] = strings.Join(values, ",")
		}
	}
	headers["host"] = r.Host
	headers["content-length"] = strconv.Itoa(length)
	forwarded := sourceIP(r)
	if earlier := headers["x-forwarded-for"]; earlier != "" {
		forwarded = earlier + ", " + forwarded
	}
	headers["x-forwarded-for"] = forwarded
	headers["x-forwarded-proto"] = "http"
	headers["x-forwarded-port"] = "80"
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		headers["x-forwarded-port"] = port
	}
	return headers
}

// cookies are the pairs as they were sent: their values are not decoded.
func cookies(header http.Header) []string {
	var cookies []string
	for _, line := range header.Values("Cookie") {
		for pair := range strings.SplitSeq(line, ";") {
			if pair = strings.TrimSpace(pair); pair != "" {
				cookies = append(cookies, pair)
			}
		}
	}
	return cookies
}

// query decodes names and values and joins the values of one name by comma. url.ParseQuery would drop pairs with a
// semicolon or a stray percent sign.
func query(raw string) map[string]string {
	var parameters map[string]string
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, value = unescape(name), unescape(value)
		if parameters == nil {
			parameters = map[string]string{}
		}
		if earlier, ok := parameters[name]; ok {
			value = earlier + "," + value
		}
		parameters[name] = value
	}
	return parameters
}

func unescape(text string) string {
	if plain, err := url.QueryUnescape(text); err == nil {
		return plain
	}
	return text
}

// encodeBody says how a body travels. The guide says that a body of a binary content type is base64-encoded and does not
// list the types; others measured that only text/* and three types of application/ go as text, so that a form, a body
// without a type and application/problem+json arrive encoded. Text that is not UTF-8 could not travel in JSON.
func encodeBody(contentType string, body []byte) (text string, encoded bool) {
	if len(body) == 0 {
		return "", false
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	isText := err == nil && (strings.HasPrefix(mediaType, "text/") ||
		mediaType == "application/json" || mediaType == "application/xml" || mediaType == "application/javascript")
	if isText && utf8.Valid(body) {
		return string(body), false
	}
	return base64.StdEncoding.EncodeToString(body), true
}

func sourceIP(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// traceID is a new root in X-Ray's form: version, seconds in hex, 96 random bits.
func traceID(now time.Time) string {
	var random [12]byte
	_, _ = rand.Read(random[:]) // never fails
	return fmt.Sprintf("Root=1-%08x-%s", now.Unix(), hex.EncodeToString(random[:]))
}
