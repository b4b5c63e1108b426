package api

// Deliveries is the body of GET /admin/v1/deliveries and GET /admin/v1/jobs/{id}/deliveries.
// NextCursor is null on the last page. Other pages may be short or empty.
type Deliveries struct {
	Deliveries []Delivery `json:"deliveries"`
	NextCursor *string    `json:"next_cursor"`
}

// Delivery is the notification of a job's end to its callback. Client, URL, WebhookID and Type are
// absent before the first attempt. During an attempt, NextAttemptAt is when the attempt counts as
// failed. ExpiresAt is when the record is removed, unless another attempt follows.
type Delivery struct {
	JobID         string            `json:"job_id"`
	Backend       string            `json:"backend"`
	Client        string            `json:"client,omitempty"`
	URL           string            `json:"url,omitempty"`
	WebhookID     string            `json:"webhook_id,omitempty"`
	Type          string            `json:"type,omitempty"` // as Event.Type
	State         string            `json:"state"`
	Attempts      int               `json:"attempts"`
	NextAttemptAt *Time             `json:"next_attempt_at,omitempty"`
	GivenUpAt     *Time             `json:"given_up_at,omitempty"` // in lists
	ExpiresAt     *Time             `json:"expires_at,omitempty"`
	Log           []DeliveryAttempt `json:"log"` // newest last, at most 20
}

// Values of Delivery.State.
const (
	DeliveryPending  = "pending"
	DeliveryDone     = "delivered"
	DeliveryFailed   = "failed"   // given up after the last attempt
	DeliveryDisabled = "disabled" // the receiver answered 410
)

// DeliveryAttempt is one call of the callback. It holds only the status of the receiver's answer.
type DeliveryAttempt struct {
	At      Time    `json:"at"`
	Seconds float64 `json:"seconds"`          // its duration
	Status  int     `json:"status,omitempty"` // absent: there was no answer
	Error   string  `json:"error,omitempty"`  // a word on why there was no answer
}
