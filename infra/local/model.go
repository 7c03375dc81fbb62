package main

import (
	"os"
	"path/filepath"
	"strings"
)

// The worker's own variables that make run hands on, where they are set.
var (
	modelVariables = []string{
		"MODEL", "MODEL_TIMEOUT", "MAX_TOKENS_PER_TASK", "OPENAI_BASE_URL", "OPENAI_API_KEY", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
	}
	// Only a model, a key or documents that are in AWS get the credentials of the person who runs the chain.
	credentialVariables = []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "HOME",
		"OPENAI_API_KEY_SECRET", "OPENAI_API_KEY_PARAMETER",
	}
)

// workerEnv is what the environment says about the worker's model and documents.
func workerEnv(retriever string) []string {
	names := modelVariables
	if inAWS(retriever) {
		names = append(names[:len(names):len(names)], credentialVariables...)
	}
	var env []string
	for _, name := range names {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	// The worker's folder is not this one.
	if folder, ok := strings.CutPrefix(retriever, "folder:"); ok {
		if absolute, err := filepath.Abs(folder); err == nil {
			retriever = "folder:" + absolute
		}
	}
	if retriever != "" {
		env = append(env, "RETRIEVER="+retriever)
	}
	return env
}

func inAWS(retriever string) bool {
	return strings.HasPrefix(os.Getenv("MODEL"), "bedrock:") || strings.HasPrefix(retriever, "kb:") || strings.HasPrefix(retriever, "s3:") ||
		os.Getenv("OPENAI_API_KEY_SECRET") != "" || os.Getenv("OPENAI_API_KEY_PARAMETER") != ""
}
