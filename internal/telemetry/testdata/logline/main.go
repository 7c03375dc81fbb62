// Command logline writes a line within a trace and one without.
package main

import (
	"context"

	"agentworker/internal/telemetry"
)

func main() {
	ctx := context.Background()
	log := telemetry.NewLogger().With("function", "worker")
	log.InfoContext(telemetry.WithTraceID(ctx, "1-5759e988-bd862e3fe1be46a994272793"), "within")
	log.InfoContext(ctx, "without")
}
