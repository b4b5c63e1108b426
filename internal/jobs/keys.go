package jobs

// The keys of one job. All keys of one backend share a hash tag, so scripts may touch them together on a cluster.
//
//	fb:{backend}:job:<id>     what the job is (string, see record.go): written by offer, and anew by redrive; a TTL from its end
//	fb:{backend}:state:<id>   where it stands (hash): from its first release on; a TTL from its end
//	fb:{backend}:result:<id>  the backend's answer (string): with the same TTL
//	fb:{backend}:shares:<id>  who has a share in it, where it is for many (hash): from its offer on; with the same TTL
//	fb:{backend}:callers:<id> who had which of them (hash): with the same TTL
//	fb:{backend}:gone:<id>    whose it was (string): written at its end, it outlives the record. Of a job for many there is none: it is nobody's
//
//	fb:{backend}:permits      open permits (zset): Holds.Text → µs since when: permits of jobs that aren't on record yet, and on a cluster
//	                          those of jobs that have ended (since 0). The reconciler takes each out after leaky.PermitLease
//
// And one of the whole deployment:
//
//	fb:secret                 what ids are derived with (string, see secret.go): no TTL, as ids are to stay the same
//
// A job with a record and no state hash waits in the line, unless it is a share in another, which has that one's standing; a share has a
// state hash of its own only where it was canceled before its job ended.

const secretKey = "fb:secret"

// KeyPrefix is what every key of a backend begins with.
func KeyPrefix(backend string) string { return "fb:{" + backend + "}:" }

// PermitsKey is the key of a backend's open permits.
func PermitsKey(backend string) string { return KeyPrefix(backend) + "permits" }

// RecordKey is the key of a job's record.
func RecordKey(backend, id string) string { return KeyPrefix(backend) + "job:" + id }

// StateKey is the key of a job's standing.
func StateKey(backend, id string) string { return KeyPrefix(backend) + "state:" + id }

// ResultKey is the key of a job's result bytes.
func ResultKey(backend, id string) string { return KeyPrefix(backend) + "result:" + id }
