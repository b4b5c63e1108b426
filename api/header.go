package api

// Header fields that aren't in every HTTP library, as Go writes them. Names are case-insensitive.
const (
	HeaderDecision          = "Forebay-Decision" // "accepted", or "degraded" or "rejected" with ;reason="..."
	HeaderOperator          = "Forebay-Operator" // admin: who tunes, for the record
	HeaderIdempotencyKey    = "Idempotency-Key"
	HeaderIdempotentReplay  = "Idempotent-Replayed" // "true": the job was there before
	HeaderRequestID         = "X-Request-Id"
	HeaderPrefer            = "Prefer"
	HeaderPreferenceApplied = "Preference-Applied"
	HeaderCacheStatus       = "Cache-Status"
	HeaderRateLimit         = "Ratelimit"
	HeaderRateLimitPolicy   = "Ratelimit-Policy"
	HeaderLegacyLimit       = "X-Ratelimit-Limit"
	HeaderLegacyRemaining   = "X-Ratelimit-Remaining"
	HeaderLegacyReset       = "X-Ratelimit-Reset"
)

// Decisions, as in HeaderDecision, logs and metrics.
const (
	Accepted = "accepted"
	Degraded = "degraded"
	Rejected = "rejected"
)
