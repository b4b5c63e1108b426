package jobs

// Ticket is one release of a job: the message "run this job at Due" on its way to a worker. It may
// be lost or come twice. Start checks Run, so only the job's newest ticket has an effect.
type Ticket struct {
	ID  string // job id
	Run int64  // number of the release, from 1
	Due int64  // µs since 1970 on Redis's clock
}
