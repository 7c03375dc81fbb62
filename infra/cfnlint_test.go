package main_test

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// cfn-lint knows CloudFormation's own schemas. It runs where it is installed.
func TestTemplatePassesCfnLint(t *testing.T) {
	program, err := exec.LookPath("cfn-lint")
	if err != nil {
		t.Skip("cfn-lint is not installed: pip install cfn-lint")
	}
	// W3005: the CDK says explicitly that a function comes after its role, which a reference says as well.
	out, err := exec.CommandContext(t.Context(), program, "--ignore-checks", "W3005", "--", filepath.Join("testdata", "template.json")).CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
