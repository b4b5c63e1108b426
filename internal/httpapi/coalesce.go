package httpapi

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/forebay/forebay/api"
	"github.com/forebay/forebay/internal/jobs"
	"github.com/forebay/forebay/internal/leaky"
)

// joint names what a request asks for, among those who may share its answer: whoever may see the answer may share the job.
func (a *attempt) joint() string {
	sum := sha256.Sum256([]byte(a.cacheKey()))
	return hex.EncodeToString(sum[:16])
}

// joins is the Join of the request's offer; "": its job is nobody else's. A request for a new answer (no-cache) gets no part in a job that
// was asked for before, and with no-store nobody gets one in its own.
func (a *attempt) joins() string {
	if !a.o.Coalesce || a.wish.NoCache || !a.o.Overload.HasScope(a.client.ID) {
		return ""
	}
	return a.joint()
}

// joined answers for a share in a job that is under way.
func (a *attempt) joined(job jobs.Job, place leaky.Place) func() error {
	return func() error {
		if job.CreatedAt = place.AcceptedAt; place.Outcome == leaky.Again {
			job.ID = place.ID
		}
		look := a.relook(leaky.Look{Job: job, Standing: jobs.Standing{State: jobs.Waiting}, WaitingOn: place.WaitingOn})
		a.w.Header()[api.HeaderCacheStatus] = []string{"forebay; fwd=miss; collapsed"}
		return a.answer(look, reasonJoined)
	}
}

// relook is where the job stands, or what is known without the store where that fails: the job is on record, and its client must learn of it.
func (a *attempt) relook(known leaky.Look) leaky.Look {
	look, err := a.line.Look(a.ctx, known.Job.ID)
	if err != nil {
		_ = a.storeFailed(err) // it is logged
		return known
	}
	return look
}
