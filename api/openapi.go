package api

import _ "embed"

// OpenAPI is the specification of the public listener: an OpenAPI 3.1 document in YAML.
//
//go:embed openapi.yaml
var OpenAPI []byte

// AdminOpenAPI is the specification of the admin listener, likewise.
//
//go:embed admin.yaml
var AdminOpenAPI []byte
