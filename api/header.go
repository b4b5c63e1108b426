package api

// Header fields that aren't in every HTTP library, spelled as their specifications do. Names are case-insensitive: read them with http.Header.Get.
const (
	HeaderDecision          = "Forebay-Decision"   // "accepted", or "degraded" or "rejected" with ;reason="..."
	HeaderOperation         = "Forebay-Operation"  // checks under /v1/check/: the operation that is asked about
	HeaderCost              = "Forebay-Cost"       // beside HeaderOperation: what the request costs
	HeaderOperator          = "Forebay-Operator"   // admin: who makes a change, for the record
	HeaderOperationLocation = "Operation-Location" // of a 202: the job's status
	HeaderIdempotencyKey    = "Idempotency-Key"
	HeaderIdempotentReplay  = "Idempotent-Replayed" // "true": the job was there before
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
