package model

import (
	"context"
	"errors"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"

	"agentworker/internal/agent/upstream"
)

// Key is a provider's API key: known, or loaded at first use and kept from then on. It never shows what it is. A nil Key
// is the empty one. It is safe for concurrent use.
type Key struct {
	load  func(ctx context.Context) (string, error) // nil: the value is all there is
	turn  chan struct{}                             // holds one token: whoever has it may load
	value string
	seen  []string // every value so far, which must not appear in an error
}

// FixedKey is a key that is known.
func FixedKey(value string) *Key {
	value = strings.TrimSpace(value)
	if _, err := header(value); err != nil {
		return newKey(func(context.Context) (string, error) { return "", err }, "")
	}
	return newKey(nil, value)
}

func newKey(load func(context.Context) (string, error), value string) *Key {
	k := &Key{load: load, turn: make(chan struct{}, 1), value: value}
	if value != "" {
		k.seen = []string{value}
	}
	k.turn <- struct{}{}
	return k
}

var (
	errNoKey    = errors.New("what lies there is neither a key nor a JSON object with the member OPENAI_API_KEY")
	errNoHeader = errors.New("the key holds a line break or another control character")
)

// header refuses what cannot be sent as a part of a header.
func header(key string) (string, error) {
	if strings.ContainsFunc(key, unicode.IsControl) {
		return "", errNoHeader
	}
	return key, nil
}

func secretText(s string) (string, error) {
	s = strings.TrimSpace(s)
	if !strings.HasPrefix(s, "{") {
		if s == "" {
			return "", errNoKey
		}
		return header(s)
	}
	var members map[string]any
	if json.Unmarshal([]byte(s), &members) == nil { // its error would quote the secret
		for _, name := range []string{"OPENAI_API_KEY", "api_key", "key"} {
			if key, ok := members[name].(string); ok && strings.TrimSpace(key) != "" {
				return header(strings.TrimSpace(key))
			}
		}
	}
	return "", errNoKey
}

// keyStore is where keys come from: AWS Secrets Manager, SSM, or the environment.
var keyStore = upstream.Service{Name: "the store of the model's API key", Prefix: "MODEL_KEY"}

// get is the key, loaded if need be.
func (k *Key) get(ctx context.Context) (string, error) {
	if k == nil {
		return "", nil
	}
	key, err := k.locked(ctx, func() bool { return k.load != nil && k.value == "" })
	switch {
	case errors.Is(err, errNoKey), errors.Is(err, errNoHeader):
		return "", keyStore.Fail(upstream.Invalid, err.Error())
	case err != nil:
		return "", keyStore.AWS(ctx, err)
	}
	return key, nil
}

// renew loads the key again after it was refused; ok is false when there is no other one.
func (k *Key) renew(ctx context.Context, refused string) (key string, ok bool) {
	if k == nil || k.load == nil {
		return "", false
	}
	key, err := k.locked(ctx, func() bool { return k.value == refused })
	return key, err == nil && key != refused
}

// locked gives the key, after loading it if that is needed still when it is this caller's turn.
func (k *Key) locked(ctx context.Context, needed func() bool) (string, error) {
	select {
	case <-k.turn:
		defer func() { k.turn <- struct{}{} }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if !needed() {
		return k.value, nil
	}
	value, err := k.load(ctx)
	if err != nil {
		return "", err
	}
	k.value = value
	k.seen = append(k.seen, value)
	return value, nil
}

// redact takes every key so far out of a text.
func (k *Key) redact(s string) string {
	if k == nil {
		return s
	}
	<-k.turn
	defer func() { k.turn <- struct{}{} }()
	for _, key := range k.seen {
		s = strings.ReplaceAll(s, key, "[API key]")
	}
	return s
}

// String hides the key, also in what is printed of a struct that holds it.
func (*Key) String() string { return "[API key]" }

// GoString hides the key.
func (*Key) GoString() string { return "[API key]" }
