//go:build !unix

package wire

// fileLimit is how many files the process may have open: no limit is known here.
func fileLimit() int { return manyFiles }
