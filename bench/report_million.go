package main

// writeMillion prints the costs of a long line.
func (r *report) writeMillion(p func(format string, args ...any)) {
	f := r.Million
	if f.Waiting == 0 {
		return
	}
	p("\n## A million waiting\n")
	p("Each step on a line of %d jobs (%d bytes each, of %d clients) against the same step on an",
		f.Waiting, len(payload), lineClients)
	p("empty line, one at a time, on two Redis servers in turn. Caller: the duration of the call.")
	p("Redis: the duration of the script, which is the stricter ratio. Goal: at most %d.\n",
		slowdownGoal)
	p("| step | caller, empty | caller, full | ratio | Redis, empty | Redis, full | ratio | met |")
	p("|---|--:|--:|--:|--:|--:|--:|---|")
	for _, x := range f.Steps {
		p("| %s | %.0f µs | %.0f µs | %.2f (%.2f..%.2f) | %.0f µs | %.0f µs | **%.2f** (%.2f..%.2f) "+
			"| %s |", x.Name, x.EmptyCaller.Median, x.FullCaller.Median,
			x.Caller.Median, x.Caller.Min, x.Caller.Max, x.EmptyRedis.Median, x.FullRedis.Median,
			x.Redis.Median, x.Redis.Min, x.Redis.Max,
			yes(max(x.Redis.Median, x.Caller.Median) <= slowdownGoal))
	}
	p("\nWhat operators ask of that line, %d times each (goal: an answer within %s):\n",
		probesARound, ms(askedGoal))
	p("| reading | Redis | the longest call | met |")
	p("|---|--:|--:|---|")
	for _, x := range f.Asked {
		p("| %s | %.0f µs | %s | %s |", x.Name, x.Redis, ms(x.Longest), yes(x.Longest <= askedGoal))
	}
	p("\nMemory of a waiting job: **%.0f bytes** (goal: under %d; met: %s). Starting and stopping a",
		f.Bytes, lineMemoryGoal, yes(f.Bytes < lineMemoryGoal))
	p("worker process:\n")
	p("| jobs waiting | from its start to its first call | goal | met | from SIGTERM to its end |")
	p("|--:|--:|--:|---|--:|")
	for _, x := range f.Starts {
		p("| %d | %s | %s | %s | %s |", x.Waiting, ms(x.First), ms(firstStartGoal),
			yes(x.First < firstStartGoal), ms(x.Stop))
	}
}
