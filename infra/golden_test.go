package main_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "renew testdata/template.json")

// The template as a whole: every change of it is to be seen by whoever reviews the change. make golden renews it.
func TestGoldenTemplate(t *testing.T) {
	app, _, settings := stackOf(t, nil)
	stackName := settings.StackName()
	file := *app.Synth(nil).GetStackByName(&stackName).TemplateFullPath()
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "template.json")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatalf("%v; run make golden", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the template has changed; if it should, run make golden (-golden +now):\n%s", cmp.Diff(parts(t, want), parts(t, got)))
	}
}

// parts are a template's resources and outputs as text, line by line, so that a difference shows no more than itself.
func parts(t *testing.T, template []byte) map[string][]string {
	t.Helper()
	var sections map[string]json.RawMessage
	if err := json.Unmarshal(template, &sections); err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for section, body := range sections {
		var members map[string]json.RawMessage
		if json.Unmarshal(body, &members) != nil {
			members = map[string]json.RawMessage{"": body}
		}
		for name, member := range members {
			got[section+" "+name] = strings.Split(string(member), "\n")
		}
	}
	return got
}

// Two runs give the same template, byte for byte: no order is left to chance.
func TestTemplateIsReproducible(t *testing.T) {
	var texts [2][]byte
	for i := range texts {
		app, _, settings := stackOf(t, map[string]any{"alarmEmail": "ops@example.com", "corsOrigins": "https://a.example.com"})
		stackName := settings.StackName()
		var err error
		if texts[i], err = os.ReadFile(*app.Synth(nil).GetStackByName(&stackName).TemplateFullPath()); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Errorf("two runs differ:\n%s", cmp.Diff(string(texts[0]), string(texts[1])))
	}
}
