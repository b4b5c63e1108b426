package api

// Deliveries is the body of GET /admin/v1/deliveries and GET /admin/v1/jobs/{id}/deliveries.
type Deliveries struct {
	Deliveries []Delivery `json:"deliveries"`
	NextCursor *string    `json:"next_cursor"` // null after the last page; a page may be short, or empty, and not be the last
}

// Delivery is the telling of one job's end to its callback.
type Delivery struct {
	JobID         string            `json:"job_id"`
	Backend       string            `json:"backend"`
	Client        string            `json:"client,omitempty"` // this and the next three: absent until the first attempt
	URL           string            `json:"url,omitempty"`
	WebhookID     string            `json:"webhook_id,omitempty"`
	Type          string            `json:"type,omitempty"` // as Event.Type
	State         string            `json:"state"`
	Attempts      int               `json:"attempts"`
	NextAttemptAt *Time             `json:"next_attempt_at,omitempty"` // DeliveryPending; of an attempt under way, when it counts as lost
	GivenUpAt     *Time             `json:"given_up_at,omitempty"`     // in a list
	ExpiresAt     *Time             `json:"expires_at,omitempty"`      // when this record is removed, unless an attempt follows
	Log           []DeliveryAttempt `json:"log"`                       // the newest last, at most 20
}

// Words of Delivery.State.
const (
	DeliveryPending  = "pending"
	DeliveryDone     = "delivered"
	DeliveryFailed   = "failed"   // given up after the last attempt
	DeliveryDisabled = "disabled" // the receiver said 410
)

// DeliveryAttempt is one try. Nothing that the receiver said is in it but the status.
type DeliveryAttempt struct {
	At      Time    `json:"at"`
	Seconds float64 `json:"seconds"`          // how long it took
	Status  int     `json:"status,omitempty"` // absent: there was no answer
	Error   string  `json:"error,omitempty"`  // why there was none, in a word
}
