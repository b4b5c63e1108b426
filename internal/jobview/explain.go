package jobview

import (
	"fmt"
	"math"
	"time"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
	"github.com/forebay/forebay/internal/web"
)

// ExplainForOperator is why a job is where it is, as an operator sees it.
func ExplainForOperator(e leaky.Explanation) api.Explanation {
	v := explain(e)
	v.Client = e.Job.Client
	if e.Position == 0 {
		return v
	}
	st := e.Status
	v.Rate.Configured = st.Configured.Rate.String()
	if st.Override.Rate != nil {
		v.Rate.Override = new(st.Override.Rate.String())
		v.Rate.OverrideNote = Note(st.Notes["rate"])
	}
	for _, a := range e.Ahead {
		v.Ahead.Clients = append(v.Ahead.Clients, api.ClientAhead(a))
	}
	v.Ahead.OtherClients, v.Ahead.OtherJobs = e.OtherClients, e.OtherJobs
	v.Ahead.Estimated = e.Sampled
	for i := range v.Holds {
		if st.Paused && v.Holds[i].What == holdPause {
			v.Holds[i].OverrideNote = Note(st.Notes["paused"])
		}
	}
	for _, r := range e.Remedies() {
		v.Sooner = append(v.Sooner, sooner(r))
	}
	return v
}

// Note is what is known of a live override.
func Note(n leaky.Note) api.OverrideNote {
	return api.OverrideNote{SetBy: n.By, SetAt: web.Time(n.At), Reason: n.Reason,
		ExpiresAt: web.Time(n.Ends)}
}

// ExplainForClient is why a job is where it is, as its client sees it: nothing in it names another
// client or an operator, and what only an operator could change isn't offered.
func ExplainForClient(e leaky.Explanation) api.Explanation {
	v := explain(e)
	for _, r := range e.Remedies() {
		if r.Change == leaky.ToPriority {
			v.Sooner = append(v.Sooner, sooner(r))
		}
	}
	return v
}

func sooner(r leaky.Remedy) api.Sooner {
	return api.Sooner{Change: r.Change, Value: r.Value, StartsInSeconds: tenths(r.Wait)}
}

func tenths(d time.Duration) float64 { return math.Round(d.Seconds()*10) / 10 }

// Values of Hold.What.
const (
	holdGate        = "gate"
	holdConcurrency = "concurrency"
	holdPause       = "pause"
)

// explain is what all may see of an explanation.
func explain(e leaky.Explanation) api.Explanation {
	backend, _ := jobs.ParseID(e.Job.ID)
	st := e.Standing
	v := api.Explanation{JobID: e.Job.ID, Backend: backend, Operation: e.Job.Operation,
		Status: st.State.Public(), State: string(st.State), At: api.Time{Time: e.Now},
		Reason: reason(e), Position: e.Position, Waiting: e.Status.Waiting}
	stopped := e.Status.Paused || e.Status.WaitingOn == leaky.OnQueuePaused
	switch {
	case e.Position > 0 && !stopped, st.State == jobs.Delayed:
		wait := untilStart(e.Look, e.Now)
		v.StartsInSeconds = new(tenths(wait))
		v.StartsAt = web.Time(e.Now.Add(wait))
	}
	if e.Position == 0 {
		return v
	}
	v.Rate = &api.ExplainedRate{Effective: e.Status.EffectiveText(), Factor: e.Status.Factor,
		Cause: string(e.Status.Cause), FactorSince: web.Time(e.LoweredAt)}
	v.Ahead = &api.Ahead{Jobs: e.Position - 1}
	v.Holds = holds(e)
	return v
}

// reason is a sentence on what a job waits for, or how it ended.
func reason(e leaky.Explanation) string {
	st := e.Standing
	failure := st.Failure.Code
	if failure != "" && st.Failure.Detail != "" {
		failure += " (" + st.Failure.Detail + ")"
	}
	switch st.State {
	case jobs.Delayed:
		return fmt.Sprintf("It waits for its retry: attempt %d failed with %s.", st.Attempts,
			failure)
	case jobs.Released:
		return "It has its slot and is on its way to a worker."
	case jobs.Running:
		if st.Canceling {
			return "Its call is being aborted."
		}
		return fmt.Sprintf("A worker is calling the backend for it, in attempt %d.", st.Attempts)
	case jobs.Succeeded:
		return "It has succeeded."
	case jobs.Failed:
		return fmt.Sprintf("It failed in attempt %d, with %s.", st.Attempts, failure)
	case jobs.Canceled:
		return "It was canceled."
	case jobs.Expired:
		return "A deadline passed before it could run: " + failure + "."
	}
	switch e.Status.WaitingOn {
	case leaky.OnPaused:
		return "It waits until the backend's drain is resumed."
	case leaky.OnQueuePaused:
		return "It waits until the queue of the backend's tickets is resumed."
	case leaky.OnCooldown:
		return "It waits until the backend has recovered."
	case leaky.OnConcurrency:
		return "It waits for its turn: calls take as long as the concurrency allows."
	}
	return "It waits for its turn at the backend's rate."
}

// holds are the things that may hold a job that waits, besides the rate and the jobs ahead.
func holds(e leaky.Explanation) []api.Hold {
	st := e.Status
	gate := api.Hold{What: holdGate, Detail: "gate open"}
	switch {
	case st.GateUntil.After(e.Now):
		gate = api.Hold{What: holdGate, Holds: true, Until: web.Time(st.GateUntil),
			Detail: "gate closed, as the backend asked"}
	case st.Probing:
		gate = api.Hold{What: holdGate, Holds: true,
			Detail: "one call tests whether the backend has recovered"}
	}
	calls := api.Hold{What: holdConcurrency,
		Holds:  st.InFlight >= int64(st.EffectiveConcurrency),
		Detail: fmt.Sprintf("%d of %d calls at once", st.InFlight, st.EffectiveConcurrency)}
	pause := api.Hold{What: holdPause, Detail: "not paused"}
	switch {
	case st.Paused:
		pause.Holds, pause.Detail = true, "paused"
	case st.WaitingOn == leaky.OnQueuePaused:
		pause.Holds, pause.Detail = true, "the queue of tickets is paused"
	}
	return []api.Hold{gate, calls, pause}
}
