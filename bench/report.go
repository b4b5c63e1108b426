package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"
)

// report is what was measured. A part that wasn't is left out.
type report struct {
	Plan        plan
	Smoke       bool // far too short to mean anything
	Machine     machine
	Ratios      []ratioRow
	Latencies   []latencyRow
	Lone        loneFigures
	Flood       floodFigures
	Drains      []drainRow
	FullSpeed   []ratioRow
	Limiters    []limiterRow
	NoBullMQ    string // why it was left out
	Idle        idleFigures
	Held        heldFigures
	Memory      []memoryRow
	Million     millionFigures
	Decisions   []ratioRow
	LimitMemory []memoryRow
	Model       []modelRow
}

type machine struct {
	CPU, Kernel, Redis string
	Load               float64 // load average at the start
}

// busyLoad is the load average, of any number of cores, from which on figures are not to be trusted.
const busyLoad = 0.7

type ratioRow struct {
	Name         string
	Conns        int
	Baseline     string
	Ours, Theirs spread // answers per second
	Ratio        spread // of each round
	Goal         float64
}

type latencyRow struct {
	Name     string
	P50, P99 spread // µs
}

// loneFigures are of requests that come one at a time.
type loneFigures struct {
	Ratio   spread  // of the medians of an accepted job and of asynq's Enqueue, of each round
	Scripts float64 // script calls of one accepted job
	Again   float64 // script calls of one refusal that the process remembers
}

// floodFigures are of clients within their limits, beside a flood of refused requests.
type floodFigures struct {
	Alone, Beside spread // their 99th percentile without and with the flood, µs
	Ratio         spread // of each round
	Refused       float64
}

type idleFigures struct {
	Scripts, Commands                      float64 // per second
	Jobs                                   int
	SentP50, SentP99, AnswerP50, AnswerP99 time.Duration
}

type memoryRow struct {
	Name  string
	Bytes float64 // per job, or per client
}

type modelRow struct {
	Name        string
	Nanoseconds float64 // a decision
	Allocs      int     // a decision
}

// write prints the report as Markdown.
func (r *report) write(out io.Writer) error {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# Benchmark\n")
	p("Output of `make bench`. Machine: %s, %d cores,", r.Machine.CPU, runtime.NumCPU())
	p("%s, %s, Redis %s.\n", r.Machine.Kernel, runtime.Version(), r.Machine.Redis)
	p("Generator, servers and Redis share the cores, so compare the ratios. Each ratio is of one")
	p("round, in which both sides run one after the other. Shown are the median of %d rounds of",
		r.Plan.Rounds)
	p("%v and, in brackets, the lowest and the highest.", r.Plan.Duration)
	if r.Machine.Load >= busyLoad {
		p("\n**The machine had other work (load average %.1f at the start): don't rely on these figures.**",
			r.Machine.Load)
	}
	if r.Smoke {
		p("\n**A smoke run: it is far too short for its figures to mean anything.**")
	}
	if len(r.Ratios) > 0 {
		p("\n## Answers per second\n")
		p("Keep-alive connections, each of which sends its next request when the last one is")
		p("answered; payloads of %d bytes; %d clients; three limits in force. No worker runs. The",
			len(payload), r.Plan.Clients)
		p("baselines are one-page programs in `bench/baseline`.\n")
		p("| answer | connections | ours /s | baseline | baseline /s | ratio | goal | met |")
		p("|---|--:|--:|---|--:|--:|--:|---|")
		for _, x := range r.Ratios {
			goal, met := fmt.Sprintf("%g", x.Goal), yes(x.Ratio.Median >= x.Goal)
			if x.Goal == 0 {
				goal, met = "", ""
			}
			p("| %s | %d | %.0f | %s | %.0f | **%.2f** (%.2f..%.2f) | %s | %s |", x.Name, x.Conns, x.Ours.Median, x.Baseline, x.Theirs.Median,
				x.Ratio.Median, x.Ratio.Min, x.Ratio.Max, goal, met)
		}
	}
	if len(r.Decisions) > 0 {
		p("\n## Decisions per second\n")
		p("%d goroutines of one process request decisions, each its next one when it has the last",
			deciders)
		p("one. Ours decides three limits at once (token-bucket, sliding-window-counter,")
		p("fixed-window), the baseline (go-redis/redis_rate/v10) one, with the same client")
		p("library on the same Redis.\n")
		p("| requests of | ours /s | redis_rate /s | ratio | goal | met |")
		p("|---|--:|--:|--:|--:|---|")
		for _, x := range r.Decisions {
			p("| %s | %.0f | %.0f | **%.2f** (%.2f..%.2f) | %.1f | %s |", x.Name, x.Ours.Median, x.Theirs.Median,
				x.Ratio.Median, x.Ratio.Min, x.Ratio.Max, x.Goal, yes(x.Ratio.Median >= x.Goal))
		}
	}
	if len(r.LimitMemory) > 0 {
		p("\n## Memory of a limit\n")
		p("Redis's `used_memory` with %d clients, each admitted once by one limit, less that of",
			r.Plan.IdleClients)
		p("an empty Redis, per client:\n")
		p("| algorithm | bytes |")
		p("|---|--:|")
		for _, x := range r.LimitMemory {
			p("| %s | %.0f |", x.Name, x.Bytes)
		}
	}
	if len(r.Model) > 0 {
		p("\n## The model in Go\n")
		p("One decision by the limits' model in Go: in this process, without Redis. Goal: under")
		p("200 ns, and no allocation.\n")
		p("| limits | ns | allocations | met |")
		p("|---|--:|--:|---|")
		for _, x := range r.Model {
			met := x.Nanoseconds < 200 && x.Allocs == 0
			p("| %s | %.0f | %d | %s |", x.Name, x.Nanoseconds, x.Allocs, yes(met))
		}
	}
	if len(r.Latencies) > 0 {
		p("\n## Latency at low load\n")
		p("One connection. Median and 99th percentile in µs.\n")
		p("| program | p50 | p99 |")
		p("|---|--:|--:|")
		for _, x := range r.Latencies {
			p("| %s | %.0f (%.0f..%.0f) | %.0f (%.0f..%.0f) |", x.Name, x.P50.Median, x.P50.Min, x.P50.Max, x.P99.Median, x.P99.Min, x.P99.Max)
		}
		ours, before := r.Latencies[len(r.Latencies)-1], r.Latencies[:len(r.Latencies)-1]
		for _, x := range before {
			p("\nAdded to %s: %.0f µs in the median, %.0f µs at the 99th percentile.", x.Name, ours.P50.Median-x.P50.Median, ours.P99.Median-x.P99.Median)
		}
	}
	if r.Lone.Ratio.Median > 0 {
		p("\nMedian of a lone accepted job ÷ that of net/http + asynq Enqueue: **%.2f** (%.2f..%.2f);",
			r.Lone.Ratio.Median, r.Lone.Ratio.Min, r.Lone.Ratio.Max)
		p("goal: at most 1.6; met: %s. Script calls of one accepted job, by Redis's", yes(r.Lone.Ratio.Median <= 1.6))
		p("`commandstats`: %.2f (goal: 1). Of one refusal before its Retry-After is over: %.4f", r.Lone.Scripts, r.Lone.Again)
		p("(goal: 0; a refusal is remembered for 10 s at most).")
	}
	if r.Flood.Ratio.Median > 0 {
		p("\n## A flood\n")
		p("4 connections of clients within their limits, without and with 60 connections of refused")
		p("ones beside them (%.0f refusals a second). Their 99th percentile is %.0f µs alone and", r.Flood.Refused, r.Flood.Alone.Median)
		p("%.0f µs beside the flood: **%.2f** (%.2f..%.2f) times; goal: at most 2; met: %s.", r.Flood.Beside.Median,
			r.Flood.Ratio.Median, r.Flood.Ratio.Min, r.Flood.Ratio.Max, yes(r.Flood.Ratio.Median <= 2))
	}
	r.writeDrains(p)
	if r.Idle.Jobs > 0 {
		p("\n## Idle\n")
		p("%d worker processes and one api without work call %.0f scripts and %.0f commands of",
			workers, r.Idle.Scripts, r.Idle.Commands)
		p("Redis per second. A job that comes then reaches the backend after (%d jobs, one at a",
			r.Idle.Jobs)
		p("time, 100/s configured):\n")
		p("| counted from | p50 | p99 |")
		p("|---|--:|--:|")
		p("| the request's sending | %s | %s |", ms(r.Idle.SentP50), ms(r.Idle.SentP99))
		p("| the 202 | %s | %s |", ms(r.Idle.AnswerP50), ms(r.Idle.AnswerP99))
	}
	r.writeHeld(p)
	if len(r.Memory) > 0 {
		p("\n## Memory\n")
		p("Redis's `used_memory` at %d jobs of %d bytes, less that of an empty Redis, per job:\n",
			r.Plan.Waiting, len(payload))
		p("| | bytes |")
		p("|---|--:|")
		for _, x := range r.Memory {
			p("| %s | %.0f |", x.Name, x.Bytes)
		}
	}
	r.writeMillion(p)
	_, err := io.WriteString(out, b.String())
	return err
}

func yes(met bool) string {
	if met {
		return "yes"
	}
	return "**no**"
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }
