// Package jobs says what a job is and where it stands: its words, its record in Redis,
// its result, and the transport (asynq) that carries "run this attempt" to a worker.
// The moves between the states are made by package leaky's scripts alone.
package jobs

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Job is what was accepted. It never changes; where it stands is a Standing.
type Job struct {
	ID          string
	Operation   string
	Client      string // the owner: a configured client's name or an anonymous caller's address (IsAnonymous)
	Tier        string
	Priority    Priority
	Payload     []byte // byte for byte as the client sent it
	CreatedAt   time.Time
	Traceparent string  // W3C trace context of the request; "" where there was none
	Fingerprint string  // tells two requests with one Idempotency-Key apart; "" without a key
	Weight      float64 // what it was offered with: a redriven job gets its place by it; 0 stands for 1
	Holds       Holds   // given back by the script that ends the job, or where they are apart, soon after
	Callback    string  // URL that is told when it ends; "": none
	Of          string  // id of the job that this is a caller's share in; "": it is one by itself
	NoStore     bool    // the request forbids its answer to be stored for others
	Shared      bool    // it is run for callers who have shares in it, or is a refresh: no client's own, though Client says whose turn it takes
}

// Anonymous reports whether the job belongs to the bearer of its id: IsAnonymous of its client.
func (j Job) Anonymous() bool { return IsAnonymous(j.Client) }

// Source is the id of the job that is run for j: where its calls, its result and its payload are.
func (j Job) Source() string {
	if j.Of != "" {
		return j.Of
	}
	return j.ID
}

// Standing is where a job stands. Times are Redis's, at microseconds; zero where they have no meaning.
type Standing struct {
	State      State
	Attempts   int       // calls begun, without those that the backend throttled
	NextAt     time.Time // delayed: when the backoff ends
	StartedAt  time.Time // start of the newest attempt
	FinishedAt time.Time // final states
	ExpiresAt  time.Time // final states: when record and result are removed
	Canceling  bool      // running, and asked to stop
	Failure    Failure   // failed and expired; and the last one of a delayed job
	Result     Meta      // succeeded, and failed where the backend had answered
	Version    int64     // grows with every move: the ETag
}

// Failure says why a job failed: a stable snake_case Code and a sentence fit for the client.
type Failure struct {
	Code   string
	Detail string
}

// Meta describes a stored answer of the backend.
type Meta struct {
	Status      int    // 0: there is none
	ContentType string // "" where the backend sent none
	Fields      Fields // others that go with the bytes
	Size        int64
	Storing     string // what the backend forbids its answer to be kept for: "", NoStore or Private. It isn't kept with the job
}

// Values of Meta.Storing, from the answer's Cache-Control.
const (
	NoStore = "no-store" // it may answer no other request
	Private = "private"  // it may answer requests of the same client alone
)

// Codes of a Failure.
const (
	CodeWorkerLost       = "worker_lost"         // its workers died retry.attempts times
	CodeDeadline         = "deadline_exceeded"   // start_within or max_age passed
	CodeBackendStatus    = "backend_status"      // the backend refused it
	CodeBackendTimeout   = "backend_timeout"     // no answer within backends.*.timeout
	CodeBackendDown      = "backend_unreachable" // no connection, or it broke
	CodeResultTooLarge   = "result_too_large"    // over operations.*.max_result
	CodeUnknownOperation = "unknown_operation"   // this worker's config doesn't have its operation
)

// NewID returns a fresh job id: the backend's name and a UUID version 4, of 122 random bits. It can't
// be guessed, and tells nothing of when the job was accepted or of how many others were.
func NewID(backend string) string {
	return backend + "-" + uuid.NewString()
}

// DeriveID returns the one job id of a client's Idempotency-Key for an operation (UUID version 8, RFC 9562
// section 5.8, over SHA-256). Each part is hashed with its length, so no two triples meet. Whoever knows
// the parts knows the id: it is for jobs that are their client's alone.
func DeriveID(backend, client, operation, key string) string {
	return backend + "-" + uuid.NewHash(sha256.New(), uuid.NameSpaceOID, parts(client, operation, key), 8).String()
}

// DeriveSecretID is DeriveID for a caller without a key: the bearer of the id has the job, so it can't be
// derived without the secret. It has the form of NewID's, and is as random.
func DeriveSecretID(secret, backend, client, operation, key string) string {
	h := hmac.New(sha256.New, []byte(secret))
	return backend + "-" + uuid.NewHash(h, uuid.NameSpaceOID, parts(client, operation, key), 4).String()
}

func parts(client, operation, key string) (data []byte) {
	for _, part := range []string{client, operation, key} {
		data = binary.BigEndian.AppendUint64(data, uint64(len(part)))
		data = append(data, part...)
	}
	return data
}

// Random reports whether a job id is one that can't be guessed: of NewID or DeriveSecretID. Earlier
// releases made others, whose jobs may still be on record.
func Random(id string) bool {
	bytes, ok := IDBytes(id)
	return ok && uuid.UUID(bytes).Version() == 4
}

// IsAnonymous reports whether the owner of a job is a caller without a key, of whom only the address is
// known. Such a job belongs to the bearer of its id.
func IsAnonymous(client string) bool { return strings.HasPrefix(client, "ip:") }

const uuidLength = 36

// IDBytes returns the 16 bytes of the UUID in a job id, by which a list of one backend's jobs knows it: a third of its text. It is
// ParseID's ok.
func IDBytes(id string) (bytes [16]byte, ok bool) {
	if _, ok := ParseID(id); !ok {
		return bytes, false
	}
	return uuid.MustParse(id[len(id)-uuidLength:]), true
}

// IDOf is the id of a backend's job whose IDBytes these are.
func IDOf(backend string, bytes [16]byte) string { return backend + "-" + uuid.UUID(bytes).String() }

// ParseID returns the backend that a job id names. It accepts what NewID, DeriveID and DeriveSecretID make.
func ParseID(id string) (backend string, ok bool) {
	cut := len(id) - uuidLength - 1
	if cut < 1 || id[cut] != '-' {
		return "", false
	}
	u, err := uuid.Parse(id[cut+1:])
	if err != nil || u.String() != id[cut+1:] {
		return "", false
	}
	return id[:cut], true
}

// Holds are permits of concurrency limits that a job takes up until it ends. The zero value holds none.
type Holds struct {
	Member string   // the permits' holder: the job's id, or that id with a suffix behind a ~
	Keys   []string // of the limits; also of those on trial that may not have given one
	Apart  bool     // the keys are on other nodes than the job: no script reaches both (Redis Cluster)
}

// Text is how the job's record and the list of open permits (PermitsKey) name the permits; "" for none.
func (h Holds) Text() string {
	if len(h.Keys) == 0 {
		return ""
	}
	between := "@"
	if h.Apart {
		between = "#"
	}
	return h.Member + between + strings.Join(h.Keys, between)
}

// ParseHolds reads what Text has written.
func ParseHolds(text string) Holds {
	between := "@"
	if !strings.Contains(text, between) {
		between = "#"
	}
	parts := strings.Split(text, between)
	return Holds{Member: parts[0], Keys: parts[1:], Apart: between == "#" && len(parts) > 1}
}
