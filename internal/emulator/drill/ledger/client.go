package ledger

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json"
)

// Client calls a ledger.
type Client struct {
	URL     string
	Process string // that calls
}

// Call makes a call under an effect key and gives the call's number.
func (c Client) Call(ctx context.Context, key string) (n int64, err error) {
	return n, c.do(ctx, http.MethodPost, callPath, key, &n)
}

// Look asks for nothing.
func (c Client) Look(ctx context.Context, key string) error {
	return c.do(ctx, http.MethodGet, lookPath, key, nil)
}

func (c Client) do(ctx context.Context, method, path, key string, out any) error {
	r, err := http.NewRequestWithContext(ctx, method, c.URL+path+"?key="+url.QueryEscape(key), nil)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "app/"+c.Process)
	// net/http repeats a GET that failed on a connection which had been used before.
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if out == nil {
		return nil
	}
	if err := json.UnmarshalRead(answer.Body, out); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}
