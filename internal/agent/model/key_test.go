package model_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"agentworker/internal/agent/model"
	"agentworker/internal/agent/model/modeltest"
	"agentworker/internal/task"
)

// keyStore speaks the two calls of Secrets Manager and SSM that give a key.
type keyStore struct {
	*httptest.Server
	mu     sync.Mutex
	secret string
	failed string // the error's name; "": none
	asked  []string
}

func newKeyStore(t *testing.T, secret string) *keyStore {
	t.Helper()
	k := &keyStore{secret: secret}
	k.Server = httptest.NewServer(http.HandlerFunc(k.serve))
	t.Cleanup(func() { k.CloseClientConnections(); k.Close() })
	return k
}

func (k *keyStore) serve(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	target := r.Header.Get("X-Amz-Target")
	k.asked = append(k.asked, target+" "+string(body))
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	value, _ := json.Marshal(k.secret)
	switch {
	case k.failed != "":
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"__type":%q,"message":"Secrets Manager can't find the specified secret."}`, k.failed)
	case target == "secretsmanager.GetSecretValue":
		fmt.Fprintf(w, `{"ARN":"arn","Name":"key","SecretString":%s}`, value)
	case target == "AmazonSSM.GetParameter":
		fmt.Fprintf(w, `{"Parameter":{"Name":"key","Type":"SecureString","Value":%s}}`, value)
	default:
		w.WriteHeader(http.StatusBadRequest)
	}
}

func (k *keyStore) set(secret, failed string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.secret, k.failed = secret, failed
}

func (k *keyStore) requests() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.asked)
}

func openAI(s *modeltest.Server, key *model.Key) *model.OpenAI {
	return model.NewOpenAI(model.OpenAIConfig{Model: "some-model", BaseURL: s.OpenAIURL(), Key: key})
}

func TestKeyIsLoadedOnceAndRenewedWhenItIsRefused(t *testing.T) {
	t.Parallel()
	kinds := map[string]struct {
		make func(*keyStore) *model.Key
		asks string
	}{
		"secret": {func(k *keyStore) *model.Key {
			return model.SecretKey(awsAt(k.URL), "arn:aws:secretsmanager:eu-west-1:1:secret:k")
		}, `"SecretId":"arn:aws:secretsmanager:eu-west-1:1:secret:k"`},
		"parameter": {func(k *keyStore) *model.Key { return model.ParameterKey(awsAt(k.URL), "/agent/key") }, `"WithDecryption":true`},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, store := modeltest.Start(t), newKeyStore(t, " first-key\n")
			s.RequireKey("first-key")
			m := openAI(s, kind.make(store))
			if store.requests() != 0 {
				t.Fatalf("the key was loaded before it was needed")
			}
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					if _, err := m.Complete(t.Context(), user("hello")); err != nil {
						t.Errorf("with the first key: %v", err)
					}
				})
			}
			wg.Wait()
			if n := store.requests(); n != 1 || !strings.Contains(store.asked[0], kind.asks) {
				t.Errorf("the store was asked %d times, %q, want once and with %s", n, store.asked, kind.asks)
			}

			store.set(`{"OPENAI_API_KEY":"second-key"}`, "")
			s.RequireKey("second-key")
			before := len(s.Calls())
			if _, err := m.Complete(t.Context(), user("hello")); err != nil {
				t.Errorf("after the key was rotated: %v", err)
			}
			if n := len(s.Calls()) - before; n != 2 || store.requests() != 2 {
				t.Errorf("got %d calls and %d requests to the store, want 2 and 2", n, store.requests())
			}

			s.RequireKey("third-key")
			before = len(s.Calls())
			_, err := m.Complete(t.Context(), user("hello"))
			if task.FailureOf(err).Code != "MODEL_ACCESS_DENIED" || !task.IsPermanent(err) || len(s.Calls())-before != 1 {
				t.Errorf("with a key that is wrong for good: got %v after %d calls, want a permanent MODEL_ACCESS_DENIED after one", err, len(s.Calls())-before)
			}
			for _, secret := range []string{"first-key", "second-key"} {
				if strings.Contains(fmt.Sprintf("%v %+v", err, err), secret) {
					t.Errorf("the error holds the key: %v", err)
				}
			}
		})
	}
}

func TestKeyThatCannotBeLoaded(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		secret, failed, code string
		permanent            bool
	}{
		"not there":     {"", "ResourceNotFoundException", "MODEL_KEY_NOT_FOUND", true},
		"not allowed":   {"", "AccessDeniedException", "MODEL_KEY_ACCESS_DENIED", true},
		"no key in it":  {`{"password":"MARKER"}`, "", "MODEL_KEY_REQUEST_INVALID", true},
		"broken object": {`{"OPENAI_API_KEY":"MARKER`, "", "MODEL_KEY_REQUEST_INVALID", true},
		"empty":         {" ", "", "MODEL_KEY_REQUEST_INVALID", true},
		"two lines":     {"MARKER-1\nMARKER-2", "", "MODEL_KEY_REQUEST_INVALID", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, store := modeltest.Start(t), newKeyStore(t, tt.secret)
			store.set(tt.secret, tt.failed)
			m := openAI(s, model.SecretKey(awsAt(store.URL), "key"))
			_, err := m.Complete(t.Context(), user("hello"))
			if task.FailureOf(err).Code != tt.code || task.IsPermanent(err) != tt.permanent || strings.Contains(err.Error(), "MARKER") {
				t.Errorf("got %v with code %s, want %s and nothing of the secret", err, task.FailureOf(err).Code, tt.code)
			}
			if len(s.Calls()) != 0 {
				t.Errorf("the model was asked without a key")
			}
			store.set("good", "")
			if _, err := m.Complete(t.Context(), user("hello")); err != nil {
				t.Errorf("once it is there: %v", err)
			}
		})
	}
}

// Nothing that a fault leads to may show a key: not the error, not the reason in the record, not a log of either, nor of the
// model itself.
func TestSecretsStayOutOfErrorsAndLogs(t *testing.T) {
	t.Parallel()
	faults := []modeltest.Reply{
		modeltest.Fail(401, "Incorrect API key provided: "+secretKey), modeltest.Deny("key " + secretKey + " may not"),
		modeltest.Fail(400, "header was Bearer "+secretKey), modeltest.Fail(500, secretKey), modeltest.Cut(), modeltest.Drop(), modeltest.Malformed(),
		modeltest.Throttle(1), modeltest.Decline("no"),
	}
	s := modeltest.Start(t)
	s.Fault(faults...)
	key := model.FixedKey(secretKey)
	config := model.OpenAIConfig{Model: "m", BaseURL: s.OpenAIURL(), Key: key}
	m := model.NewOpenAI(config)
	var seen bytes.Buffer
	log := slog.New(slog.NewTextHandler(&seen, nil))
	for range faults {
		_, err := m.Complete(t.Context(), user("hello"))
		if err == nil {
			t.Fatal("no error for a fault")
		}
		log.Error("failed", "error", err, "failure", task.FailureOf(err), "model", m, "config", config)
		fmt.Fprintf(&seen, "%v %+v %#v\n", err, err, task.FailureOf(err))
	}
	log.Info("", "key", key)
	fmt.Fprintf(&seen, "%v %+v %#v %s", key, key, key, key)
	if strings.Contains(seen.String(), "MARKER") {
		t.Errorf("the key is in:\n%s", seen.String())
	}
	for _, c := range s.Calls() {
		if c.Authorization != "Bearer "+secretKey {
			t.Errorf("authorization: got %q, want the key", c.Authorization)
		}
	}
}

func TestKeyOfTheEnvironmentThatCannotBeSent(t *testing.T) {
	t.Parallel()
	s := modeltest.Start(t)
	_, err := openAI(s, model.FixedKey("MARKER-1\nMARKER-2")).Complete(t.Context(), user("hello"))
	if task.FailureOf(err).Code != "MODEL_KEY_REQUEST_INVALID" || !task.IsPermanent(err) || strings.Contains(err.Error(), "MARKER") || len(s.Calls()) != 0 {
		t.Errorf("got %v after %d calls, want MODEL_KEY_REQUEST_INVALID, nothing of the key, and no call", err, len(s.Calls()))
	}
}

func TestServerWithoutKey(t *testing.T) {
	t.Parallel()
	s := modeltest.Start(t)
	for _, key := range []*model.Key{nil, model.FixedKey("")} {
		if _, err := openAI(s, key).Complete(t.Context(), user("hello")); err != nil {
			t.Errorf("got %v, want an answer", err)
		}
	}
	for _, c := range s.Calls() {
		if c.Authorization != "" {
			t.Errorf("authorization: got %q, want none", c.Authorization)
		}
	}
}

func TestWaitingForAKeyEndsWithTheTask(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-release
	}))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(release) })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err := openAI(modeltest.Start(t), model.SecretKey(awsAt(slow.URL), "key")).Complete(ctx, user("hello"))
	if err == nil || ctx.Err() == nil || task.FailureOf(err).Code != task.CodeFailed {
		t.Errorf("got %v, want the context's error", err)
	}
}
