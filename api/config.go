package api

// RunningConfig is the body of GET /admin/v1/config.
type RunningConfig struct {
	Process string `json:"process"` // as in events
	// Config is the config of the process that answers, as YAML with every default: what its flags
	// changed in it, secrets as ***, and what came from the environment as ${NAME}. Live overrides
	// aren't in it.
	Config string `json:"config"`
}
