package config

import (
	"testing"
)

// N26: what a status means is the operator's to say, and each has one meaning.
func TestAStatusIsInOneListOfRetry(t *testing.T) {
	t.Parallel()
	for retry, want := range map[string]string{
		"rest: [503, 520]":       "",
		"rest: []":               "",
		"rest: [503], on: [429]": "",
		"on: [500, 529]":         "", // as before 529 was among those of rest
		"rest: [520], on: [500, 520]": `f.yaml:5: backends.reports.retry.on[1]: "520" is in ` +
			`backends.reports.retry.rest: it closes the backend's gate and uses up no attempt; ` +
			`leave it out of one of the lists`,
		"rest: [200]": `f.yaml:5: backends.reports.retry.rest[0]: "200" is no ` +
			`status of a failure; write one of 400 to 599`,
		"rest: [503, 503]": `f.yaml:5: backends.reports.retry.rest[1]: "503" stands ` +
			`in the list twice`,
	} {
		text := "identity: {anonymous: free}\ntiers: {free: {}}\n" +
			"operations: {report: {backend: reports, path: /render}}\n" +
			"backends:\n  reports: {url: \"http://127.0.0.1:9000\", drain: {rate: 5/s}, retry: {" +
			retry + "}}\n"
		got := ""
		if _, _, err := read("f.yaml", []byte(text), env, Rules{}); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s", retry, got)
		}
	}
}
