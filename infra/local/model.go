package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"agentworker/internal/awsprofile"
)

// The worker's own variables that make run hands on, where they are set.
var modelVariables = []string{
	"MODEL", "MODEL_TIMEOUT", "MAX_TOKENS_PER_TASK", "OPENAI_BASE_URL", "OPENAI_API_KEY", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
	"OPENAI_API_KEY_SECRET", "OPENAI_API_KEY_PARAMETER",
	// The way out of a network that has a proxy, and whom to trust there.
	"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "AWS_CA_BUNDLE",
}

// outside is what the worker gets to reach its model and documents with.
type outside struct {
	env    []string // KEY=VALUE
	region string   // of what is in AWS; "": nothing is
}

// reach is what the environment says about the worker's model and documents.
func reach(ctx context.Context, retriever string) (outside, error) {
	var o outside
	for _, name := range modelVariables {
		if value, set := os.LookupEnv(name); set {
			o.env = append(o.env, name+"="+value)
		}
	}
	// The worker's folder is not this one. No path at all is not this folder either: the worker refuses it.
	if folder, ok := strings.CutPrefix(retriever, "folder:"); ok && folder != "" {
		if absolute, err := filepath.Abs(folder); err == nil {
			retriever = "folder:" + absolute
		}
	}
	if retriever != "" {
		o.env = append(o.env, "RETRIEVER="+retriever)
	}
	if !inAWS(retriever) {
		return o, nil // nobody gets credentials without need
	}
	// A function finds credentials in its environment only; whoever starts the chain may have a profile or single sign-on.
	const patience = 10 * time.Second
	cfg, err := awsprofile.Load(ctx, patience)
	if err != nil {
		return o, fmt.Errorf("model or documents are in AWS, whose settings cannot be read: %w", err)
	}
	if cfg.Region == "" {
		return o, fmt.Errorf("model or documents are in AWS, in no region that is known: set AWS_REGION, or choose a profile that has one with AWS_PROFILE")
	}
	keys, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return o, fmt.Errorf("model or documents are in AWS, and there are no credentials for it; set AWS_PROFILE, or sign in: %w", err)
	}
	o.region = cfg.Region
	o.env = append(o.env, "AWS_ACCESS_KEY_ID="+keys.AccessKeyID, "AWS_SECRET_ACCESS_KEY="+keys.SecretAccessKey)
	if keys.SessionToken != "" {
		o.env = append(o.env, "AWS_SESSION_TOKEN="+keys.SessionToken)
	}
	return o, nil
}

func inAWS(retriever string) bool {
	return strings.HasPrefix(os.Getenv("MODEL"), "bedrock:") || strings.HasPrefix(retriever, "kb:") || strings.HasPrefix(retriever, "s3:") ||
		os.Getenv("OPENAI_API_KEY_SECRET") != "" || os.Getenv("OPENAI_API_KEY_PARAMETER") != ""
}
