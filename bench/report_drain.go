package main

// writeDrains prints the figures of the drains: the pacing table, full speed, and the comparison
// with BullMQ.
func (r *report) writeDrains(p func(format string, args ...any)) {
	if len(r.Drains) > 0 {
		p("\n## Drain\n")
		p("Worker processes on one backend that records each call's arrival, for %v after %v.",
			r.Plan.Drain, r.Plan.Settle)
		p("Goal: the mean within 0.2 %% (above 500/s within 1 %%), and in any window of w seconds no more")
		p("than rate × w + 1 + 1 %%. Most in a window: found, and allowed. Scripts: calls to Redis per")
		p("job. Commands: all commands that Redis executes per job, those inside scripts included.\n")
		p("| rate | processes | mean | error | most in 0.1 s | in 1 s | in 10 s " +
			"| gap p1 | gap p99 | met | scripts | commands |")
		p("|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|--:|--:|")
		for _, x := range r.Drains {
			p("| %v/s | %d | %.2f/s | %+.2f %% | %d of %d | %d of %d | %d of %d "+
				"| %s | %s | %s | %.1f | %.0f |",
				x.Configured, x.Workers, x.Rate, x.deviation(),
				x.Tenth, x.allowed(tenth), x.Second, x.allowed(second), x.Ten, x.allowed(ten),
				ms(x.Gap1), ms(x.Gap99), yes(x.met()), x.Scripts, x.Commands)
		}
	}
	if len(r.FullSpeed) > 0 {
		p("\n## Drain at full speed\n")
		p("Rate `unlimited`, one worker process, %d calls at a time, a backend that answers at",
			callsAtOnce)
		p("once: jobs a second, of %d that wait. The baseline is a plain asynq worker",
			r.Plan.Drained)
		p("(`bench/asynqworker`) with as many calls at a time. Long-term goal: 0.7.\n")
		p("| | ours /s | asynq worker /s | ratio | goal | met |")
		p("|---|--:|--:|--:|--:|---|")
		for _, x := range r.FullSpeed {
			p("| %s | %.0f | %.0f | **%.2f** (%.2f..%.2f) | %.1f | %s |",
				x.Name, x.Ours.Median, x.Theirs.Median,
				x.Ratio.Median, x.Ratio.Min, x.Ratio.Max, x.Goal, yes(x.Ratio.Median >= x.Goal))
		}
	}
	if len(r.Limiters) > 0 {
		p("\n## BullMQ's global limiter\n")
		p("The same backend and rate, %d processes each, for %v. Most: in any window of 1 s.",
			workers, r.Plan.LimiterSpan)
		p("Error, in percent of the rate: that of the mean, or that of the fullest second over")
		p("rate + 1 + 1 %%, whichever is more. Goal: ours is at most a tenth of theirs.\n")
		p("| rate | limiter | its mean | its most | its error | our mean | our most | our error | met |")
		p("|--:|---|--:|--:|--:|--:|--:|--:|---|")
		for _, x := range r.Limiters {
			p("| %v/s | %s | %.2f/s | %d | %.2f %% | %.2f/s | %d | %.2f %% | %s |",
				x.Configured, x.Limiter, x.Theirs.Rate, x.Theirs.Second, failing(x.Theirs),
				x.Ours.Rate, x.Ours.Second, failing(x.Ours), yes(x.met()))
		}
	}
	if r.NoBullMQ != "" {
		p("\n## BullMQ's global limiter\n")
		p("Not measured: %s.", r.NoBullMQ)
	}
}
