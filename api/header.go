package api

// Header fields that not every HTTP library names, spelled as in their specifications. Names are
// case-insensitive: read them with http.Header.Get.
const (
	HeaderDecision          = "Forebay-Decision"   // a decision, and ;reason="..." if there is one
	HeaderOperation         = "Forebay-Operation"  // checks under /v1/check/: the operation
	HeaderCost              = "Forebay-Cost"       // beside HeaderOperation: the request's cost
	HeaderOperator          = "Forebay-Operator"   // admin: the operator's name, for the log
	HeaderOperationLocation = "Operation-Location" // of a 202: the job's status
	HeaderIdempotencyKey    = "Idempotency-Key"
	HeaderIdempotentReplay  = "Idempotent-Replayed" // "true": the job existed before
	HeaderRequestID         = "X-Request-Id"
	HeaderPrefer            = "Prefer"
	HeaderPreferenceApplied = "Preference-Applied"
	HeaderCacheStatus       = "Cache-Status"
	HeaderRateLimit         = "RateLimit"
	HeaderRateLimitPolicy   = "RateLimit-Policy"
	HeaderLegacyLimit       = "X-RateLimit-Limit"
	HeaderLegacyRemaining   = "X-RateLimit-Remaining"
	HeaderLegacyReset       = "X-RateLimit-Reset"
)

// Decisions, as in HeaderDecision, logs and metrics.
const (
	Accepted = "accepted"
	Degraded = "degraded"
	Rejected = "rejected"
)
