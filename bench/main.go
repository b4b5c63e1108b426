// Command bench measures the whole system against plain programs in the same run, and prints
// Markdown.
//
//	go run .            everything, under ten minutes; docs/bench.md is its output
//	go run . -long      slow rates too, and longer: some minutes more
//	go run . -short     a smoke run of under a minute: only its errors mean something
//	go run . -only drain
//
// It is a module of its own and runs in this folder, so that the product doesn't depend on the
// programs and libraries that it is compared with.
//
// It builds the real binaries and the baselines, and starts its own Redis. It measures each figure
// in rounds, in which ours and the baseline take turns: a machine that is slower for a while is
// slower for both. The result is the ratio of each round, as a median and a spread. Absolute
// figures depend on the machine, whose cores the generator, the servers and Redis share.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
	"time"
)

// plan says how much to measure.
type plan struct {
	Rounds   int           // of each comparison
	Duration time.Duration // of one side in one round
	Warmup   time.Duration // before it

	Rates        []float64     // of the pacing table, per second
	Workers      []int         // processes, of the pacing table
	Long         bool          // rates up to 1/s are measured for SlowDrain
	Settle       time.Duration // of a drain, before it counts
	Drain        time.Duration // the part of a drain that counts
	SlowDrain    time.Duration // the same, for slow rates of a long run
	Drained      int64         // jobs of one side and round of the drain at full speed
	LimiterSpan  time.Duration // of each setting of BullMQ's limiter, and of ours beside it
	LimiterRates []float64
	IdleJobs     int           // jobs submitted one by one for the latency of an idle system
	IdleSpan     time.Duration // in which an idle system's Redis commands are counted
	Waiting      int64         // jobs in line for the memory of each
	Million      int64         // jobs in the long line
	Clients      int           // API keys that the connections share
	Polled       int           // jobs in line whose status is polled
	IdleClients  int           // clients of one limit whose memory is measured
	Stored       int           // answers that are stored, to be read from Redis
	Held         int           // clients that wait at one time
	Woken        int           // waits that are measured
}

var (
	full = plan{
		Rounds: 5, Duration: 3 * time.Second, Warmup: 300 * time.Millisecond,
		Rates: []float64{1, 10, 100, 500, 1000}, Workers: []int{1, 3, 8},
		Settle: time.Second, Drain: 10 * time.Second, SlowDrain: 30 * time.Second,
		Drained: 10_000, LimiterSpan: 6 * time.Second, LimiterRates: []float64{10, 100},
		IdleJobs: 100, IdleSpan: 5 * time.Second,
		Waiting: 100_000, Million: 1_000_000, Clients: 16, Polled: 64, IdleClients: 20_000,
		Stored: 60_000, Held: 1000, Woken: 2000,
	}
	short = plan{
		Rounds: 1, Duration: 300 * time.Millisecond, Warmup: 100 * time.Millisecond,
		Rates: []float64{10, 500}, Workers: []int{1, 3},
		Settle: 300 * time.Millisecond, Drain: time.Second, SlowDrain: time.Second,
		Drained: 500, LimiterSpan: time.Second, LimiterRates: []float64{10},
		IdleJobs: 10, IdleSpan: 500 * time.Millisecond,
		Waiting: 1000, Million: 5000, Clients: 4, Polled: 8, IdleClients: 200,
		Stored: 1000, Held: 50, Woken: 100,
	}
)

// scenarios are in the order of the report. Each adds its figures to r.
var scenarios = []struct {
	name string
	run  func(ctx context.Context, e *env, r *report) error
}{
	{"limits", decisions},
	{"front", front},
	{"drain", pacing},
	{"full-speed", fullSpeed},
	{"bullmq", bullmq},
	{"idle", idle},
	{"held", held},
	{"memory", memory},
	{"million", million},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil &&
		!errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	smoke := flags.Bool("short", false, "a smoke run: figures mean nothing")
	only := flags.String("only", "", "regular expression of the scenarios to run: "+
		"limits, front, drain, full-speed, bullmq, idle, held, memory, million")
	long := flags.Bool("long", false, "the pacing table at 0.2/s too, and slow rates for 30 s")
	rounds := flags.Int("rounds", 0, "rounds of each comparison; 0: 5, or 1 with -short")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pick, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	p := full
	if *smoke {
		p = short
	}
	if *long {
		p.Long, p.Rates = true, append([]float64{0.2}, p.Rates...)
	}
	if *rounds > 0 {
		p.Rounds = *rounds
	}
	// The generator gets one core: it only waits for sockets, and a second one would spin at the
	// servers' cost.
	runtime.GOMAXPROCS(1)

	busy := loadAverage() // before the build adds to it
	e, err := setUp(ctx, p, progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.tearDown(err != nil && ctx.Err() == nil)) }()
	r := &report{Plan: p, Smoke: *smoke, Machine: e.machine(ctx)}
	r.Machine.Load = busy
	for _, s := range scenarios {
		if !pick.MatchString(s.name) {
			continue
		}
		if err := s.run(ctx, e, r); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return r.write(out)
}
