//go:build race

package httpapi_test

// raced: the race detector slows this process down, but not Redis, by some ten times.
const raced = true
