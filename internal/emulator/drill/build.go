package drill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// build makes the functions' binaries below dir: the two that deploy, and the drill's worker.
func build(ctx context.Context, root, dir string) error {
	g, ctx := errgroup.WithContext(ctx)
	for name, source := range map[string]string{
		"worker": "./internal/emulator/drill/worker", "submit": "./functions/submit", "dlqalarm": "./functions/dlqalarm",
	} {
		g.Go(func() error {
			out := filepath.Join(dir, name, "bootstrap")
			command := exec.CommandContext(ctx, "go", "build", "-tags", "lambda.norpc", "-o", out, source)
			command.Dir, command.Env = root, append(os.Environ(), "CGO_ENABLED=0")
			if text, err := command.CombinedOutput(); err != nil {
				return fmt.Errorf("build %s: %w\n%s", source, err, text)
			}
			return nil
		})
	}
	return g.Wait()
}

// moduleRoot is the folder above the current one that holds go.mod.
func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above " + start + ": the drill builds what it runs and needs the source")
		}
	}
}
