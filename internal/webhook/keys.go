package webhook

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/forebay/forebay/internal/jobs"
)

// The keys of webhooks. Those of one backend share its hash tag, so scripts may touch them together
// on a cluster.
//
//	fb:{b}:callbacks      zset    job id → µs when its next attempt is due: the outbox. Written by
//	                              the script that ends a job. An id is removed when its webhook
//	                              was delivered or given up, which the schedule bounds
//	fb:{b}:delivery:<id>  hash    the message, its URL, and the attempts: a TTL of at least
//	                              keepDelivery
//	fb:{b}:undelivered    zset    job id → µs when it was given up: at most maxListed, with the
//	                              TTL of the last one's record
//	fb:webhook:disabled:<client and URL>
//	                      string  the receiver answered 410: a TTL of disabledFor
//
// Channel: fb:{b}:callback (a delivery was added to the outbox).

func outboxKey(backend string) string       { return jobs.KeyPrefix(backend) + "callbacks" }
func deliveryKey(backend, id string) string { return jobs.KeyPrefix(backend) + "delivery:" + id }
func undeliveredKey(backend string) string  { return jobs.KeyPrefix(backend) + "undelivered" }
func wakeChannel(backend string) string     { return jobs.KeyPrefix(backend) + "callback" }

// disabledKey has a digest of a client's URL, because the URL may contain a secret.
func disabledKey(client, url string) string {
	sum := sha256.Sum256([]byte(client + " " + url))
	return "fb:webhook:disabled:" + hex.EncodeToString(sum[:16])
}
