package main

// writeDrains prints what was measured of the back: the pacing table, full speed, and BullMQ beside it.
func (r *report) writeDrains(p func(format string, args ...any)) {
	if len(r.Drains) > 0 {
		p("\n## Drain\n")
		p("Worker processes on one backend that notes each call's arrival, for %v after %v. Goal: the mean within 0.2 %% (above 500/s within", r.Plan.Drain, r.Plan.Settle)
		p("1 %%), and in no window of w seconds more than rate × w + 1 + 1 %%. Most in a window: found, and allowed. Scripts and commands: what Redis is called for,")
		p("and all that it does (a script's own commands included), for each job.\n")
		p("| rate | processes | mean | error | most in 0.1 s | in 1 s | in 10 s | gap p1 | gap p99 | met | scripts | commands |")
		p("|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|--:|--:|")
		for _, x := range r.Drains {
			p("| %v/s | %d | %.2f/s | %+.2f %% | %d of %d | %d of %d | %d of %d | %s | %s | %s | %.1f | %.0f |", x.Configured, x.Workers, x.Rate, x.deviation(),
				x.Tenth, x.allowed(tenth), x.Second, x.allowed(second), x.Ten, x.allowed(ten), ms(x.Gap1), ms(x.Gap99), yes(x.met()), x.Scripts, x.Commands)
		}
	}
	if len(r.FullSpeed) > 0 {
		p("\n## Drain at full speed\n")
		p("Rate `unlimited`, one worker process, %d calls at once, a backend that answers at once: jobs a second, of %d that wait. The baseline", callsAtOnce, r.Plan.Drained)
		p("is a plain asynq worker (`bench/asynqworker`) with as many calls at once. Aim: 0.7.\n")
		p("| | ours /s | asynq worker /s | ratio | goal | met |")
		p("|---|--:|--:|--:|--:|---|")
		for _, x := range r.FullSpeed {
			p("| %s | %.0f | %.0f | **%.2f** (%.2f..%.2f) | %.1f | %s |", x.Name, x.Ours.Median, x.Theirs.Median,
				x.Ratio.Median, x.Ratio.Min, x.Ratio.Max, x.Goal, yes(x.Ratio.Median >= x.Goal))
		}
	}
	if len(r.Limiters) > 0 {
		p("\n## BullMQ's global limiter\n")
		p("The same backend and rate, %d processes each, for %v. Most: in any window of 1 s. Error: of the mean, or of the fullest second over", workers, r.Plan.LimiterSpan)
		p("rate + 1 + 1 %%, in percent of the rate, whichever is more. Goal: ours is at most a tenth of theirs.\n")
		p("| rate | limiter | its mean | its most | its error | our mean | our most | our error | met |")
		p("|--:|---|--:|--:|--:|--:|--:|--:|---|")
		for _, x := range r.Limiters {
			p("| %v/s | %s | %.2f/s | %d | %.2f %% | %.2f/s | %d | %.2f %% | %s |", x.Configured, x.Limiter, x.Theirs.Rate, x.Theirs.Second, failing(x.Theirs),
				x.Ours.Rate, x.Ours.Second, failing(x.Ours), yes(x.met()))
		}
	}
	if r.NoBullMQ != "" {
		p("\n## BullMQ's global limiter\n")
		p("Not measured: %s.", r.NoBullMQ)
	}
}
