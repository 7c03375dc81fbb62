package model

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentworker/internal/agent/chat"
	"agentworker/internal/agent/upstream"
)

// service is whom the calls of this package go to.
var service = upstream.Service{Name: "the model", Prefix: "MODEL"}

// DefaultTimeout bounds one call of a model where nothing else is set. It leaves a worker of one minute the time to say
// that the model did not answer.
const DefaultTimeout = 45 * time.Second

// noOutput stands for a tool's empty result, which providers do not accept.
const noOutput = "(no output)"

// checked gives an answer that somebody can go on with, or the error that it amounts to.
func checked(r chat.Response) (chat.Response, error) {
	cut := r.Stop == chat.StopLength
	if len(r.ToolCalls) > 0 {
		if cut {
			return chat.Response{}, service.Fail(upstream.Cut, "in the middle of a tool's input")
		}
		r.Stop = chat.StopTools
		return r, nil
	}
	if strings.TrimSpace(r.Text) == "" {
		if cut {
			return chat.Response{}, service.Fail(upstream.Cut, "before it said anything")
		}
		return chat.Response{}, service.Fail(upstream.BadAnswer, "it is empty")
	}
	return r, nil
}

// plainKey is what may stand in an HTTP header and in Converse's request metadata.
var plainKey = lazily(`^[a-zA-Z0-9 :_@$#=/+,.-]{1,256}$`)

// headerKey is the effect key, or a hash of one that a provider would not take.
func headerKey(effectKey string) string {
	if effectKey == "" || plainKey().MatchString(effectKey) {
		return effectKey
	}
	sum := sha256.Sum256([]byte(effectKey))
	return "sha256=" + hex.EncodeToString(sum[:])
}

// arguments is the input of a call as the model wrote it.
func arguments(in jsontext.Value) string {
	var raw string
	if in.Kind() == '"' && json.Unmarshal(in, &raw) == nil {
		return raw // what was no JSON, see input
	}
	return string(in)
}

// input makes valid JSON of a call's arguments: what is none, which no tool accepts, becomes a string.
func input(arguments string) jsontext.Value {
	if blank := strings.TrimSpace(arguments); blank == "" || blank == "null" { // how a call without arguments is written
		return jsontext.Value("{}")
	}
	if v := jsontext.Value(arguments); v.IsValid() && v.Kind() != '"' {
		return v
	}
	raw, err := jsontext.AppendQuote(nil, arguments)
	if err != nil {
		return jsontext.Value(`"not UTF-8"`)
	}
	return raw
}
