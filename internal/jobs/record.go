package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A job's record is one string, so that a waiting job costs little memory:
//
//	<accepted> <start by> <end by> <keep> <client tag> [=<job> |& ][$<bytes> ][@<holds> ][! ]{words}\n<payload>
//
// The numbers (µs since 1970, keep in ms) are written by the offer and redrive scripts on Redis's clock and read by the other
// scripts. So are the marks that follow, each with a blank behind it: =job makes it a share in that job (Of), and & marks a job that
// others have shares in; bytes are those of the rest, where they are counted for the client; holds are its Holds, which the script that ends the job gives back; ! says that its end is to be told to its Callback.
// The words are the rest of the Job as JSON; the payload is what the client sent, byte for byte.

// Bounds of a record's words: the look script reads no further than 2.5 KiB, so that a status costs the same whatever the payload.
// Names and ids are bounded well below maxWords by config and identity.
const (
	maxWords = 900 // bytes of JSON, beside those of the Callback
	// MaxCallback bounds the bytes of a job's Callback.
	MaxCallback = 512
)

// MaxHolds bounds the keys of a job's Holds: with each of at most 142 bytes, and the words, they stay within what look reads.
const MaxHolds = 4

type words struct {
	Operation   string   `json:"o"`
	Client      string   `json:"c"`
	Tier        string   `json:"t,omitempty"`
	Priority    Priority `json:"p,omitempty"` // absent: normal
	Traceparent string   `json:"tp,omitempty"`
	Fingerprint string   `json:"f,omitempty"`
	Weight      float64  `json:"w,omitempty"`
	Callback    string   `json:"cb,omitempty"`
	NoStore     bool     `json:"ns,omitempty"`
}

// EncodeRecord returns what of a job's record the caller writes: Holds, words and payload. Its Of and Shared are left to the offer script,
// which knows of what job it is a share.
func EncodeRecord(j Job) ([]byte, error) {
	w := words{Operation: j.Operation, Client: j.Client, Tier: j.Tier, Priority: j.Priority, Traceparent: j.Traceparent, Fingerprint: j.Fingerprint, Weight: j.Weight,
		Callback: j.Callback, NoStore: j.NoStore}
	if w.Priority == Normal {
		w.Priority = ""
	}
	if w.Weight == 1 {
		w.Weight = 0 // the usual one takes no bytes
	}
	head, err := marshal(w)
	if err != nil {
		return nil, fmt.Errorf("encode job %s: %w", j.ID, err)
	}
	if len(j.Callback) > MaxCallback {
		return nil, fmt.Errorf("encode job %s: its callback takes %d bytes, over %d", j.ID, len(j.Callback), MaxCallback)
	}
	if n := len(head) - len(j.Callback); n > maxWords {
		return nil, fmt.Errorf("encode job %s: its words take %d bytes, over %d", j.ID, n, maxWords)
	}
	if len(j.Holds.Keys) > MaxHolds {
		return nil, fmt.Errorf("encode job %s: it holds %d permits, over %d", j.ID, len(j.Holds.Keys), MaxHolds)
	}
	out := make([]byte, 0, 2+len(head)+1+len(j.Payload)+150*len(j.Holds.Keys))
	if holds := j.Holds.Text(); holds != "" {
		for _, part := range append([]string{j.Holds.Member}, j.Holds.Keys...) {
			if strings.ContainsAny(part, "@# ") {
				return nil, fmt.Errorf("encode job %s: permit %q has a blank, an @ or a #", j.ID, part)
			}
		}
		out = append(append(append(out, '@'), holds...), ' ')
	}
	if j.Callback != "" {
		out = append(out, "! "...)
	}
	out = append(out, head...)
	out = append(out, '\n')
	return append(out, j.Payload...), nil
}

// marshal writes the words as they are: a callback's & takes one byte.
func marshal(w words) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(w)
	return bytes.TrimSuffix(out.Bytes(), []byte{'\n'}), err
}

// Times are what the record's numbers say.
type Times struct {
	Accepted, StartBy, EndBy time.Time
	Keep                     time.Duration
}

var errRecord = errors.New("malformed job record")

// DecodeRecord reads the whole record of the job with this id, or its beginning up to at least the end of the words. The payload is what
// follows in data and is shared with it.
func DecodeRecord(id string, data []byte) (Job, Times, error) {
	var numbers [4]int64
	rest := data
	for i := range numbers {
		field, after, found := bytes.Cut(rest, []byte{' '})
		n, err := strconv.ParseInt(string(field), 10, 64)
		if !found || err != nil {
			return Job{}, Times{}, errRecord
		}
		numbers[i], rest = n, after
	}
	_, rest, found := bytes.Cut(rest, []byte{' '}) // the client tag is the scripts' own
	j := Job{ID: id}
	for found && len(rest) > 0 && rest[0] != '{' {
		var mark []byte
		mark, rest, found = bytes.Cut(rest, []byte{' '})
		j.readMark(string(mark))
	}
	head, payload, ended := bytes.Cut(rest, []byte{'\n'})
	if !found || !ended {
		return Job{}, Times{}, errRecord
	}
	var w words
	if err := json.Unmarshal(head, &w); err != nil {
		return Job{}, Times{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	if w.Priority == "" {
		w.Priority = Normal
	}
	if w.Weight == 0 {
		w.Weight = 1
	}
	t := Times{
		Accepted: time.UnixMicro(numbers[0]),
		StartBy:  time.UnixMicro(numbers[1]),
		EndBy:    time.UnixMicro(numbers[2]),
		Keep:     time.Duration(numbers[3]) * time.Millisecond,
	}
	j.Operation, j.Client, j.Tier, j.Priority, j.Weight = w.Operation, w.Client, w.Tier, w.Priority, w.Weight
	j.Traceparent, j.Fingerprint, j.Callback, j.NoStore = w.Traceparent, w.Fingerprint, w.Callback, w.NoStore
	j.Payload, j.CreatedAt = payload, t.Accepted
	return j, t, nil
}

// readMark reads one of a record's marks. ! is the scripts' own.
func (j *Job) readMark(mark string) {
	if mark == "&" {
		j.Shared = true
	}
	if of, ok := strings.CutPrefix(mark, "="); ok {
		j.Of = of
	}
	if holds, ok := strings.CutPrefix(mark, "@"); ok {
		j.Holds = ParseHolds(holds)
	}
}
