package api

// Cache is the body of GET /admin/v1/cache: the stored answers and their use.
type Cache struct {
	Operations []CachedOperation `json:"operations"` // each of the config, by name
}

// CachedOperation describes the stored answers of one operation. Answers and Bytes count for all
// processes. The later fields count what this process has done since its start (the metrics have
// them for every process).
type CachedOperation struct {
	Operation string `json:"operation"`
	Answers   int    `json:"answers"`
	Bytes     int64  `json:"bytes"`   // in the store
	Partial   bool   `json:"partial"` // there are more than Answers

	Hits        int64 `json:"hits"`         // requests answered with a fresh one
	Stale       int64 `json:"stale"`        // requests answered with a stale one
	Misses      int64 `json:"misses"`       // requests for which no stored answer could be served
	ServedBytes int64 `json:"served_bytes"` // of the bodies
}

// CachedAnswer is the body of GET /admin/v1/cache/entry: a stored answer without its body.
type CachedAnswer struct {
	Key              string  `json:"key"` // its name for CachePurge
	AgeSeconds       float64 `json:"age_seconds"`
	RemovedInSeconds float64 `json:"removed_in_seconds"`
	Status           int     `json:"status"`
	ContentType      string  `json:"content_type,omitempty"`
	Size             int64   `json:"size"` // bytes of its body
}

// CachePurge is the body of POST /admin/v1/cache/purge. At least one field must be set. Answers
// that match all set fields are removed.
type CachePurge struct {
	Operation *string `json:"operation,omitempty"`
	Client    *string `json:"client,omitempty"` // answers to its requests, shared ones included
	Key       *string `json:"key,omitempty"`    // CachedAnswer.Key
}

// CachePurged is the outcome of a purge.
type CachePurged struct {
	Removed int `json:"removed"` // answers
}
