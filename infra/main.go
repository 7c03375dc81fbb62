// Command infra is the CDK app: it describes the stack on AWS with the names and numbers that it shares with the local
// chain, and refuses what AWS would refuse or what would lose messages.
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"
)

// flags are the CDK's recommended feature flags, and the metadata by which SAM's command line finds the functions. They
// are handed to the app, and not left to cdk.json, so that the template does not depend on who runs the app.
//
//go:embed flags.json
var flags []byte

func main() {
	err := run()
	jsii.Close()
	if err != nil {
		fmt.Fprintf(os.Stderr, "The stack is not deployed like this:\n%v\n", bullets(err))
		os.Exit(1)
	}
}

// run writes the cloud assembly. Its error is every reason not to.
func run() error {
	app, err := NewApp(nil)
	if err != nil {
		return err
	}
	settings, err := ReadSettings(app.Node())
	if err := errors.Join(err, settings.CheckBinaries()); err != nil {
		return err
	}
	NewStack(app, settings)
	template, err := Synth(app, settings.StackName())
	if err != nil {
		return err
	}
	return template.Validate()
}

// NewApp makes an app whose context is the flags and more, under what the command line says.
func NewApp(more map[string]any) (awscdk.App, error) {
	values := map[string]any{}
	if err := json.Unmarshal(flags, &values); err != nil {
		return nil, fmt.Errorf("read flags.json: %w", err)
	}
	maps.Copy(values, more)
	props := awscdk.AppProps{Context: &values, AnalyticsReporting: jsii.Bool(false)}
	if os.Getenv("CDK_OUTDIR") == "" {
		props.Outdir = jsii.String("cdk.out")
	}
	return awscdk.NewApp(&props), nil
}

// Synth writes the cloud assembly and returns a stack's template.
func Synth(app awscdk.App, stackName string) (Template, error) {
	file := *app.Synth(nil).GetStackByName(&stackName).TemplateFullPath()
	text, err := os.ReadFile(file) //nolint:gosec // G304: written by the CDK a moment ago
	if err != nil {
		return Template{}, fmt.Errorf("read the template: %w", err)
	}
	var t Template
	if err := json.Unmarshal(text, &t); err != nil {
		return Template{}, fmt.Errorf("read the template: %w", err)
	}
	return t, nil
}

// bullets puts each problem on a line of its own.
func bullets(err error) string {
	var list interface{ Unwrap() []error }
	if !errors.As(err, &list) {
		return "  - " + err.Error()
	}
	var b bytes.Buffer
	for i, e := range list.Unwrap() {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(bullets(e))
	}
	return b.String()
}
