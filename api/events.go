package api

// OperationEvents is the body of GET /admin/v1/events.
type OperationEvents struct {
	Events     []OperationEvent `json:"events"`      // in order of their ids
	NextCursor *string          `json:"next_cursor"` // null: there is no later event yet
}

// OperationEvent is something that happened in the service's operation: a change by an operator, by
// feedback or by a file, or a process or the store that came or went. It is recorded once for all
// processes.
type OperationEvent struct {
	ID      string `json:"id"` // its position: later events have larger ones
	Time    Time   `json:"time"`
	Type    string `json:"type"` // one of the Event… constants
	Backend string `json:"backend,omitempty"`
	By      string `json:"by,omitempty"` // an operator or a process
	Reason  string `json:"reason,omitempty"`
	Text    string `json:"text,omitempty"`
	// Before and After have the settings that changed, by name.
	Before map[string]string `json:"before,omitempty"`
	After  map[string]string `json:"after,omitempty"`
}

// Values of OperationEvent.Type.
const (
	// Changes by operators.
	EventBackendTuned       = "backend_tuned"
	EventBackendReset       = "backend_reset"
	EventOverrideEnded      = "override_ended" // by itself, as it was set to
	EventJobCanceled        = "job_canceled"
	EventJobRedriven        = "job_redriven"
	EventJobsRedriven       = "jobs_redriven"
	EventWebhookRedelivered = "webhook_redelivered"
	EventAnswersPurged      = "stored_answers_purged"

	// Changes of how a backend is treated.
	EventGateClosed    = "gate_closed"    // it asked for rest
	EventProbePassed   = "probe_passed"   // the call after a closed gate was answered
	EventRateLowered   = "rate_lowered"   // trouble has lowered the effective rate
	EventRateRecovered = "rate_recovered" // the full rate applies again

	EventClientsReloaded = "clients_reloaded"
	EventClientsRefused  = "clients_refused" // the clients file is broken: the clients stay

	EventProcessStarted = "process_started"
	EventProcessStopped = "process_stopped"
	EventProcessLost    = "process_lost" // it ended without a word, or can't reach the store
	EventStoreLost      = "store_lost"
	EventStoreFound     = "store_found"
	EventsDropped       = "events_dropped" // more than a process could keep without the store
)

// OperationEventTypes has all values of OperationEvent.Type.
var OperationEventTypes = []string{EventBackendTuned, EventBackendReset, EventOverrideEnded,
	EventJobCanceled, EventJobRedriven, EventJobsRedriven, EventWebhookRedelivered, EventAnswersPurged,
	EventGateClosed, EventProbePassed, EventRateLowered, EventRateRecovered, EventClientsReloaded,
	EventClientsRefused, EventProcessStarted, EventProcessStopped, EventProcessLost,
	EventStoreLost, EventStoreFound, EventsDropped}
