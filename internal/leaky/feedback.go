package leaky

import "time"

// Sign is the sign of the backend's health that an attempt gives.
type Sign string

const (
	NoSign      Sign = ""            // there was no answer, but not because of the backend
	Answered    Sign = "answered"    // the backend answered, with any status; implied by Succeeded
	Throttled   Sign = "throttled"   // it asked for rest: 429, 503
	Timeout     Sign = "timeout"     // it didn't answer in time
	Unreachable Sign = "unreachable" // it could not be reached, or the connection broke
)

// Change is a change of how the backend is treated, made by one settlement.
type Change string

const (
	GateClosed Change = "gate_closed" // no call until the gate opens
	Lowered    Change = "lowered"     // trouble has lowered the effective rate
	// It was well for long enough: the full rate applies again.
	RaisedToFull Change = "raised_to_full"
	// The call after a closed gate was answered: the line moves on.
	ProbePassed Change = "probe_passed"
)

// Changes has all values of Change.
var Changes = []Change{GateClosed, Lowered, RaisedToFull, ProbePassed}

// Feedback is how a backend is treated after a settlement, and how that settlement changed it. Each
// change is reported once, to the caller whose settlement made it. If the reply is lost, so is the
// report.
type Feedback struct {
	Changes []Change
	Factor  float64       // the part of the rate that is in force; 1: all of it
	Gate    time.Duration // until the gate opens; 0: it is open
}
