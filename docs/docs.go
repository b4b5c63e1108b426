// Package docs has the pages of this directory as files, for forebay docs.
package docs

import "embed"

// Pages are the pages, by file name.
//
//go:embed *.md
var Pages embed.FS
