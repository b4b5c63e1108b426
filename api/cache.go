package api

// Cache is the body of GET /admin/v1/cache: what is known already, and what came of it.
type Cache struct {
	Operations []CachedOperation `json:"operations"` // all of the config, by name
}

// CachedOperation tells of one operation's stored answers. Answers and Bytes are all processes'; what follows is what this process has done
// since it began (the metrics have the same, and of every process).
type CachedOperation struct {
	Operation string `json:"operation"`
	Answers   int    `json:"answers"`
	Bytes     int64  `json:"bytes"`   // in the store
	Partial   bool   `json:"partial"` // there are more: Answers of them were counted

	Hits        int64 `json:"hits"`         // requests answered as if the answer were new
	Stale       int64 `json:"stale"`        // requests answered with a stale one
	Misses      int64 `json:"misses"`       // requests that wanted one, where there was none that might be served
	ServedBytes int64 `json:"served_bytes"` // of the bodies
}

// CachedAnswer is the body of GET /admin/v1/cache/entry: all of a stored answer but what it says.
type CachedAnswer struct {
	Key              string  `json:"key"` // names it for CachePurge
	AgeSeconds       float64 `json:"age_seconds"`
	RemovedInSeconds float64 `json:"removed_in_seconds"`
	Status           int     `json:"status"`
	ContentType      string  `json:"content_type,omitempty"`
	Size             int64   `json:"size"` // bytes of its body
}

// CachePurge is the body of POST /admin/v1/cache/purge. At least one field must be there; answers go that fit all of them.
type CachePurge struct {
	Operation *string `json:"operation,omitempty"`
	Client    *string `json:"client,omitempty"` // those that were given to this client's requests, whoever shares them
	Key       *string `json:"key,omitempty"`    // CachedAnswer.Key
}

// CachePurged says what a purge did.
type CachePurged struct {
	Removed int `json:"removed"` // answers
}
