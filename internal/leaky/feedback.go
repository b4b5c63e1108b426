package leaky

import "time"

// Sign is what one attempt says of its backend's health.
type Sign string

const (
	NoSign      Sign = ""            // nothing: it got no answer, and not for the backend's fault
	Answered    Sign = "answered"    // the backend answered, well or not; a Settlement to Succeeded says so by itself
	Throttled   Sign = "throttled"   // it asked to be left alone: 429, 503
	Timeout     Sign = "timeout"     // it didn't answer in time
	Unreachable Sign = "unreachable" // it could not be reached, or the connection broke
)

// Change is what one settlement changed of how the backend is treated.
type Change string

const (
	GateClosed   Change = "gate_closed"    // no call to it until the gate opens
	Lowered      Change = "lowered"        // its trouble has lowered the effective rate
	RaisedToFull Change = "raised_to_full" // it has been well for long enough: the rate is whole again
	ProbePassed  Change = "probe_passed"   // the one call after a closed gate was answered: the line moves on
)

// Changes are all of them.
var Changes = []Change{GateClosed, Lowered, RaisedToFull, ProbePassed}

// Feedback is how a backend is treated since a settlement, and what that settlement changed. Each change is told once, to
// the caller whose settlement made it; where that answer was lost, to nobody.
type Feedback struct {
	Changes []Change
	Factor  float64       // what is left of the rate; 1: all of it
	Gate    time.Duration // until the gate opens; 0: it is open
}
