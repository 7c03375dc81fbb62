package main_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	infra "agentworker/infra"
)

// binDir stands for the functions' binaries. What is in them never changes, so that the template does not either.
var binDir string

func TestMain(m *testing.M) {
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" {
		beFunction()
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	defer jsii.Close()
	dir, err := os.MkdirTemp("", "infra-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, name := range []string{"worker", "submit", "dlqalarm"} {
		file := filepath.Join(dir, name, "bootstrap")
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if err == nil {
			err = os.WriteFile(file, []byte("the binary of "+name+"\n"), 0o755)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	binDir = dir
	// The built-in validation takes as long as all the rest; make synth has it.
	if err := os.Setenv("CDK_VALIDATION", "false"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// stackOf makes the stack with settings made by context. The CDK's engine takes one call at a time: no test is parallel.
func stackOf(t *testing.T, context map[string]any) (awscdk.App, *infra.Stack, infra.Settings) {
	t.Helper()
	t.Setenv("CDK_OUTDIR", t.TempDir())
	app, err := infra.NewApp(context)
	if err != nil {
		t.Fatal(err)
	}
	settings, err := infra.ReadSettings(app.Node())
	if err != nil {
		t.Fatalf("settings %v: %v", context, err)
	}
	settings.BinDir = binDir
	return app, infra.NewStack(app, settings), settings
}

func templateOf(t *testing.T, context map[string]any) infra.Template {
	t.Helper()
	app, _, settings := stackOf(t, context)
	template, err := infra.Synth(app, settings.StackName())
	if err != nil {
		t.Fatal(err)
	}
	return template
}

var (
	defaultOnce     sync.Once
	defaultTemplate []byte
)

// byDefault is a copy of the template without any setting.
func byDefault(t *testing.T) infra.Template {
	t.Helper()
	defaultOnce.Do(func() {
		text, err := json.Marshal(templateOf(t, nil))
		if err != nil {
			t.Fatal(err)
		}
		defaultTemplate = text
	})
	var template infra.Template
	if err := json.Unmarshal(defaultTemplate, &template); err != nil {
		t.Fatal(err)
	}
	return template
}

// ofType are the logical ids of all resources of a type, sorted.
func ofType(template infra.Template, kind string) []string {
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(template.Resources)) {
		if template.Resources[id].Type == kind {
			ids = append(ids, id)
		}
	}
	return ids
}

// only is the one resource of a type whose logical id begins with prefix.
func only(t *testing.T, template infra.Template, kind, prefix string) (string, infra.Resource) {
	t.Helper()
	var found []string
	for _, id := range ofType(template, kind) {
		if len(id) >= len(prefix) && id[:len(prefix)] == prefix {
			found = append(found, id)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s resources with prefix %s: got %q, want one", kind, prefix, found)
	}
	return found[0], template.Resources[found[0]]
}

// text is a value as JSON with sorted names.
func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// at reads a property by its path.
func at(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}
