package api

// Problem is the body of every error (RFC 9457, application/problem+json), and of a failed job's
// error member.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Code is stable, for use by programs: one of the constants below, or a failed job's own.
	Code string `json:"code"`
	// Reason is the limit's name, or "line_full", "client_share", "wait_too_long" or "stored_full":
	// the same word as in Forebay-Decision.
	Reason           string   `json:"reason,omitempty"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
	// RetryAfter repeats the header of that name, in seconds.
	RetryAfter int `json:"retry_after,omitempty"`
	// Errors name the fields that are wrong (CodeInvalidFields).
	Errors []FieldError `json:"errors,omitempty"`
	// Operations are those that the caller may request (CodeUnknownOperation).
	Operations []string `json:"operations,omitempty"`
	// Backend has the settings as they are now, and who changed them (CodeSettingsChanged).
	Backend *Backend `json:"backend,omitempty"`
	// BackendAnswer is the backend's answer to a failed job, if there was one.
	BackendAnswer *BackendAnswer `json:"backend_answer,omitempty"`
	RequestID     string         `json:"request_id,omitempty"`
}

// Error implements error.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Code
	}
	return p.Code + ": " + p.Detail
}

// FieldError is one wrong field of a body.
type FieldError struct {
	Detail  string `json:"detail"`
	Pointer string `json:"pointer"` // a JSON Pointer as URI fragment, such as "#/priority"
}

// BackendAnswer is a backend's answer inside a problem.
type BackendAnswer struct {
	Status      int    `json:"status"`
	ContentType string `json:"content_type,omitempty"`
	// Fields are other header fields that describe it, by name, such as Content-Encoding.
	Fields     map[string]string `json:"fields,omitempty"`
	Body       string            `json:"body,omitempty"`        // if the bytes are valid UTF-8
	BodyBase64 []byte            `json:"body_base64,omitempty"` // if they aren't
}

// Types of problems. Those of quotas are drafted by the IETF
// (draft-ietf-httpapi-ratelimit-headers-11). All other problems are identified by their Code.
const (
	TypeQuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	TypeReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	TypeBlank           = "about:blank"
)

// Codes of problems.
const (
	CodeInvalidRequest        = "invalid_request"         // 400: malformed JSON or headers
	CodeInvalidIdempotencyKey = "invalid_idempotency_key" // 400
	CodeInvalidCredentials    = "invalid_credentials"     // 400, 401; 429, admin: too many wrong
	CodeCrossSite             = "cross_site"              // 403, admin and check: from another site
	CodeNotAllowed            = "operation_not_allowed"   // 403: not for the caller's tier
	CodeUnknownOperation      = "unknown_operation"       // 404
	CodeUnknownJob            = "job_not_found"           // 404: also another client's job
	CodeUnknownBackend        = "backend_not_found"       // 404, admin
	CodeUnknownPreview        = "preview_not_found"       // 404, admin: its time is over, or never was
	CodeNoAnswer              = "answer_not_found"        // 404, admin: no such answer is stored
	CodeUnknownPath           = "not_found"               // 404
	CodeMethod                = "method_not_allowed"      // 405
	CodeNotFinished           = "job_not_finished"        // 409: no result yet, or no purge yet
	CodeFinished              = "job_finished"            // 409: too late to cancel
	CodeNoCallback            = "no_callback"             // 409, admin: the job has no callback
	CodeNotFailed             = "job_not_failed"          // 409, admin: only for failed jobs
	CodeCanceled              = "job_canceled"            // 410: there will be no result
	CodeResultGone            = "result_gone"             // 410
	CodeJobGone               = "job_gone"                // 410: ended, and expired or purged
	CodeSlowBody              = "body_too_slow"           // 408: the body came too slowly
	CodeSettingsChanged       = "settings_changed"        // 412, admin: see Problem.Backend
	CodeTooLarge              = "body_too_large"          // 413
	CodeMediaType             = "unsupported_media_type"  // 415
	CodeInvalidFields         = "invalid_fields"          // 422: see Problem.Errors
	CodeKeyReuse              = "idempotency_key_reuse"   // 422: used with another request before
	CodeCostTooHigh           = "cost_exceeds_limit"      // 422: the request can never be admitted
	CodeRateLimit             = "rate_limit_exceeded"     // 429: Problem.Reason names the limit
	CodeLineFull              = "line_full"               // 429; 409 in a redrive
	CodeClientShare           = "client_share_exceeded"   // 429: no more places for this client
	CodeWaitTooLong           = "wait_too_long"           // 429
	CodeStoredFull            = "stored_full"             // 429: the client's bytes are used up
	CodeTooManyLists          = "too_many_lists"          // 429: the caller is reading another list
	CodeTooManyStreams        = "too_many_streams"        // 429: too many answers are held back
	CodeTooManyAnswers        = "too_many_answers"        // 429, 503: too many bytes are unread
	CodeInternal              = "internal_error"          // 500
	CodeStore                 = "store_unavailable"       // 503
	CodeBusy                  = "too_many_bodies"         // 503: no memory for the body
	CodeShuttingDown          = "shutting_down"           // 503
	CodeNotReady              = "not_ready"               // 503, of the public /readyz
	CodeNotCached             = "not_cached"              // 504: no answer for only-if-cached
)
