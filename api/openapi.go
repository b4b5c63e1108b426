package api

import _ "embed"

// OpenAPI is the specification of both listeners: an OpenAPI 3.1 document in YAML.
//
//go:embed openapi.yaml
var OpenAPI []byte
