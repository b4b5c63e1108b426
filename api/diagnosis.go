package api

// Diagnosis is the body of GET /admin/v1/health: what is right and what is wrong, as this process
// sees it. The answer's status is 200 whatever it says.
type Diagnosis struct {
	Level    string    `json:"level"` // the worst of Findings
	At       Time      `json:"at"`
	Findings []Finding `json:"findings"` // the worst first
}

// Finding is what a Diagnosis says of one thing.
type Finding struct {
	Level   string `json:"level"`
	Thing   string `json:"thing"`             // "store", "backend", "workers" and so on
	Backend string `json:"backend,omitempty"` // of Thing "backend"
	Cause   string `json:"cause"`             // a sentence without its period
	Since   *Time  `json:"since,omitempty"`   // when it began, or was first seen; absent: not known
	Next    string `json:"next,omitempty"`    // the command to go on with
}

// Levels of a Finding, from the best to the worst.
const (
	LevelOK       = "ok"
	LevelWarning  = "warning"
	LevelUnknown  = "unknown" // what was seen last is too old to judge by
	LevelCritical = "critical"
)
