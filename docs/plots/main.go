// Command plots draws docs/limits-*.svg: the decisions of each algorithm on the same traffic. Run
// it at the root of the repository:
//
//	go run ./docs/plots
//
// The decisions are those of the limits' model (package limits) with a simulated clock. So the
// pictures are the same each time, and are true as long as the code is. A test compares those in
// docs/ with the output of this program.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/forebay/forebay/internal/limits"
)

func main() {
	if err := run(context.Background(), "docs"); err != nil {
		fmt.Fprintln(os.Stderr, "plots:", err)
		os.Exit(1)
	}
}

// run writes a picture for each algorithm into a directory.
func run(ctx context.Context, dir string) error {
	for _, l := range drawn {
		seen, err := watch(ctx, l)
		if err != nil {
			return fmt.Errorf("%s: %w", l.Algorithm, err)
		}
		if err := os.WriteFile(filepath.Join(dir, fileName(l)), draw(l, seen), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func fileName(l limits.Limit) string { return "limits-" + string(l.Algorithm) + ".svg" }

const (
	amount = 20
	window = 10 * time.Second
)

// drawn are the limits. All allow 2 requests a second in the long run, except concurrency, which
// has no rate.
var drawn = []limits.Limit{
	{Name: "fixed", Algorithm: limits.FixedWindow, Amount: amount, Window: window},
	{Name: "log", Algorithm: limits.SlidingWindowLog, Amount: amount, Window: window},
	{Name: "counter", Algorithm: limits.SlidingWindowCounter, Amount: amount, Window: window},
	{Name: "token", Algorithm: limits.TokenBucket, Amount: amount, Window: window},
	{Name: "leaky", Algorithm: limits.LeakyBucket, Amount: amount, Window: window, Burst: 5},
	{Name: "concurrency", Algorithm: limits.Concurrency, Amount: 8},
}

// lasts is the length of a job, for limits on concurrent jobs: 8 jobs of 4 seconds are 2 a second.
const lasts = 4 * time.Second
