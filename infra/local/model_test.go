package main_test

import (
	"bufio"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentworker/internal/agent/model/modeltest"
)

// The worker asks a model in AWS with the profile's credentials, in the profile's region, and trusts whom the shell says: the
// proxy of a company may answer with a certificate of its own.
func TestAModelInAWSIsAskedAsTheProfileSays(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	for name, text := range map[string]string{
		"config":      "[profile work]\nregion = eu-central-1\n",
		"credentials": "[work]\naws_access_key_id = AKIDWORK\naws_secret_access_key = secret\n",
	} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	model := modeltest.Start(t)
	model.Converse(modeltest.Say("From far away."))
	behind, err := url.Parse(model.BedrockURL())
	if err != nil {
		t.Fatal(err)
	}
	signed := make(chan string, 10)
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(behind) }}
	front := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signed <- r.Header.Get("Authorization")
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	bundle := filepath.Join(home, "bundle.pem")
	if err := os.WriteFile(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}

	cmd := chain(t, "MODEL=bedrock:a-model", "AWS_CA_BUNDLE="+bundle, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME="+front.URL, "AWS_PROFILE=work", "AWS_REGION=", "AWS_ACCESS_KEY_ID=",
		"AWS_CONFIG_FILE="+filepath.Join(home, "config"), "AWS_SHARED_CREDENTIALS_FILE="+filepath.Join(home, "credentials"))
	lines, out, problems := up(t, cmd)
	api := regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+`).FindString(out.String())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api+"/agent/query?thread_id=th-1&question=What+is+a+dead-letter+queue", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusAccepted {
		t.Fatalf("the question was answered with %s", res.Status)
	}
	select {
	case got := <-signed:
		if !strings.Contains(got, "Credential=AKIDWORK/") || !strings.Contains(got, "/eu-central-1/bedrock/") {
			t.Errorf("the model was asked with %q, want the profile's key and region", got)
		}
	case <-time.After(time.Minute):
		t.Errorf("the model was not asked:\n%s", problems)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, lines)
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v, want exit code 0\n%s", err, problems)
	}
}

func TestAModelInAWSNeedsCredentials(t *testing.T) {
	t.Parallel()
	for want, region := range map[string]string{"no region that is known: set AWS_REGION": "", "no credentials for it; set AWS_PROFILE": "eu-central-1"} {
		cmd := chain(t, "MODEL=bedrock:a-model", "AWS_REGION="+region, "AWS_DEFAULT_REGION=", "AWS_PROFILE=", "AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=",
			"AWS_CONFIG_FILE=/nonexistent", "AWS_SHARED_CREDENTIALS_FILE=/nonexistent", "AWS_EC2_METADATA_DISABLED=true")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("it ended with %v and said\n%s\nwant %q", err, out, want)
		}
	}
}

// RETRIEVER="folder:$DOCUMENTS" with DOCUMENTS unset names no folder: the one that make run is started in must not be read.
func TestAFolderWithoutAPathIsRefused(t *testing.T) {
	t.Parallel()
	cmd := chain(t, "RETRIEVER=folder:")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), "Ready") {
			t.Error("it is up, want the setting refused")
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(said.String(), `RETRIEVER must be "offline", "folder:" and a path`) {
		t.Errorf("it ended with %v and said\n%s\nwant what RETRIEVER must be", err, &said)
	}
}
