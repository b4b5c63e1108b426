// Package jobs defines a job and its standing: the types, the record in Redis, the result, and the
// transport (asynq) that carries "run this attempt" to a worker. Only the scripts of package leaky
// move jobs between states.
package jobs

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Job is an accepted request. It never changes; its progress is a Standing.
type Job struct {
	ID          string
	Operation   string
	Client      string // the owner: a client's name, or an anonymous caller's address (IsAnonymous)
	Tier        string
	Priority    Priority
	Payload     []byte // byte for byte as the client sent it
	CreatedAt   time.Time
	Traceparent string  // W3C trace context of the request; "" where there was none
	Fingerprint string  // distinguishes requests with one Idempotency-Key; "" without a key
	Weight      float64 // from its offer; determines a redriven job's place; 0 means 1
	Holds       Holds   // returned by the script that ends the job or, if Apart, soon after
	Callback    string  // URL that is notified when it ends; "": none
	Of          string  // if it is a subscription, the id of the job that it follows; otherwise ""
	NoStore     bool    // the request forbids storing its answer for others
	// Shared: it runs for its subscriptions. It is unowned: Client is only the client in whose flow
	// it waits.
	Shared bool
}

// Anonymous reports whether the job belongs to the bearer of its id (IsAnonymous of its client).
func (j Job) Anonymous() bool { return IsAnonymous(j.Client) }

// Source returns the id of the job that runs for j and has the calls, the result and the payload: j
// itself, or the job that j subscribes to.
func (j Job) Source() string {
	if j.Of != "" {
		return j.Of
	}
	return j.ID
}

// Standing is the progress of a job. Times are on Redis's clock, in microseconds, and zero where
// they have no meaning.
type Standing struct {
	State      State
	Attempts   int       // calls begun, without those that the backend throttled
	NextAt     time.Time // delayed: when the backoff ends
	StartedAt  time.Time // start of the newest attempt
	FinishedAt time.Time // final states
	ExpiresAt  time.Time // final states: when record and result are removed
	Canceling  bool      // running, and asked to stop
	Failure    Failure   // of a failed or expired job; of a delayed one, the last attempt's
	Result     Meta      // succeeded, and failed where the backend had answered
	Version    int64     // grows with every move: the ETag
}

// Failure is the reason why a job failed: a stable snake_case Code, and a sentence for the client.
type Failure struct {
	Code   string
	Detail string
}

// Meta describes a stored answer of the backend.
type Meta struct {
	Status      int    // 0: there is none
	ContentType string // "" where the backend sent none
	Fields      Fields // the other header fields that are kept
	Size        int64
	// Storing is the backend's restriction on storing the answer: "", NoStore or Private. It isn't
	// kept with the job.
	Storing string
}

// Values of Meta.Storing, from the answer's Cache-Control.
const (
	NoStore = "no-store" // it must answer no other request
	Private = "private"  // it may only answer requests of the same client
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

// NewID returns a fresh job id: the backend's name and a UUID version 4, of 122 random bits. It
// can't be guessed, and doesn't reveal when the job was accepted or how many others were.
func NewID(backend string) string {
	return backend + "-" + uuid.NewString()
}

// DeriveID returns the job id of a client's Idempotency-Key for an operation (UUID version 8, RFC
// 9562 section 5.8, over SHA-256). Each part is hashed with its length, so no two triples collide.
// The id can be computed from the parts, so it is only for jobs that belong to a client.
func DeriveID(backend, client, operation, key string) string {
	return backend + "-" +
		uuid.NewHash(sha256.New(), uuid.NameSpaceOID, parts(client, operation, key), 8).String()
}

// DeriveSecretID is DeriveID for an anonymous caller. The job belongs to the bearer of the id, so
// the id can't be derived without the secret. It has the form of an id from NewID, and is as
// random.
func DeriveSecretID(secret, backend, client, operation, key string) string {
	h := hmac.New(sha256.New, []byte(secret))
	return backend + "-" +
		uuid.NewHash(h, uuid.NameSpaceOID, parts(client, operation, key), 4).String()
}

func parts(client, operation, key string) (data []byte) {
	for _, part := range []string{client, operation, key} {
		data = binary.BigEndian.AppendUint64(data, uint64(len(part)))
		data = append(data, part...)
	}
	return data
}

// Random reports whether a job id can't be guessed, as one from NewID or DeriveSecretID can't.
// Earlier releases made other ids, whose jobs may still be on record.
func Random(id string) bool {
	bytes, ok := IDBytes(id)
	return ok && uuid.UUID(bytes).Version() == 4
}

// IsAnonymous reports whether the owner of a job is a caller without an API key, known only by its
// address. Such a job belongs to the bearer of its id.
func IsAnonymous(client string) bool { return strings.HasPrefix(client, "ip:") }

const uuidLength = 36

// IDBytes returns the 16 bytes of the UUID in a job id. Lists of one backend's jobs use them, since
// they take a third of the id's text. ok is as for ParseID.
func IDBytes(id string) (bytes [16]byte, ok bool) {
	if _, ok := ParseID(id); !ok {
		return bytes, false
	}
	return uuid.MustParse(id[len(id)-uuidLength:]), true
}

// IDOf returns the id of a backend's job from its IDBytes.
func IDOf(backend string, bytes [16]byte) string {
	return backend + "-" + uuid.UUID(bytes).String()
}

// ParseID returns the backend that a job id names. It accepts the ids of NewID, DeriveID and
// DeriveSecretID.
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

// Holds are the permits of concurrency limits that a job holds until it ends. The zero value holds
// none.
type Holds struct {
	Member string   // the permits' holder: the job's id, or that id with a suffix behind a ~
	Keys   []string // of the limits, including shadow limits, which may not have given one
	// Apart: the keys are on other nodes than the job (Redis Cluster), so no script reaches both.
	Apart bool
}

// Text returns the permits as they stand in the job's record and in the list of open permits
// (PermitsKey); "" for none.
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

// ParseHolds is the inverse of Holds.Text.
func ParseHolds(text string) Holds {
	between := "@"
	if !strings.Contains(text, between) {
		between = "#"
	}
	parts := strings.Split(text, between)
	return Holds{Member: parts[0], Keys: parts[1:], Apart: between == "#" && len(parts) > 1}
}
