package jobs

// The keys of one job. All keys of one backend share a hash tag, so scripts may touch them together
// on a cluster.
//
//	fb:{backend}:job:<id>      the record (string, see record.go): written by offer, and anew by
//	                           redrive; a TTL from the job's end
//	fb:{backend}:state:<id>    the standing (hash): from the first release on; a TTL from the end
//	fb:{backend}:result:<id>   the backend's answer (string): with the same TTL
//	fb:{backend}:shares:<id>   the subscriptions of a shared job (hash): from its offer on; with
//	                           the same TTL
//	fb:{backend}:callers:<id>  which caller had which of them (hash): with the same TTL
//	fb:{backend}:gone:<id>     the owner (string): written at the end, it outlives the record. A
//	                           shared job has none: it is unowned
//
//	fb:{backend}:permits       open permits (zset), on a cluster: Holds.Text → µs since when.
//	                           Permits of jobs that aren't on record yet, and of jobs that have
//	                           ended (since 0). The reconciler removes each after
//	                           leaky.PermitLease
//
// One key belongs to the whole deployment:
//
//	fb:secret                  the secret that ids are derived with (string, see secret.go): no
//	                           TTL, as ids must stay the same
//
// A job with a record and no state hash waits in the line. A subscription is an exception: it has
// the standing of the job that it follows, and a state hash of its own only if it was canceled
// before that job ended.

const secretKey = "fb:secret"

// KeyPrefix returns the prefix of all keys of a backend.
func KeyPrefix(backend string) string { return "fb:{" + backend + "}:" }

// PermitsKey returns the key of a backend's open permits.
func PermitsKey(backend string) string { return KeyPrefix(backend) + "permits" }

// RecordKey returns the key of a job's record.
func RecordKey(backend, id string) string { return KeyPrefix(backend) + "job:" + id }

// StateKey returns the key of a job's standing.
func StateKey(backend, id string) string { return KeyPrefix(backend) + "state:" + id }

// ResultKey returns the key of a job's result bytes.
func ResultKey(backend, id string) string { return KeyPrefix(backend) + "result:" + id }
