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
//	<accepted> <start by> <end by> <keep> <client tag> <marks>{metadata}\n<payload>
//	marks: [=<job> |& ][$<bytes> ][@<holds> ][! ]
//
// The offer and redrive scripts write the numbers (µs since 1970 on Redis's clock; keep in ms) and
// the marks that follow, each with a space after it. The other scripts read them:
//
//   - =job: this is a subscription to that job (Of);
//   - &: the job is shared (Shared);
//   - $bytes: the bytes of the rest, if they count for the client;
//   - @holds: its Holds, which the script that ends the job gives back;
//   - !: its Callback is notified when it ends.
//
// The metadata is the rest of the Job as JSON. The payload is that of the request, byte for byte.

// Bounds of a record's metadata: the look script reads only the first 2.5 KiB, so that a status
// costs the same for any payload. Config and identity bound names and ids well below maxMetadata.
const (
	maxMetadata = 900 // bytes of JSON, without those of the Callback
	// MaxCallback bounds the bytes of a job's Callback.
	MaxCallback = 512
)

// MaxHolds bounds the keys of a job's Holds, of at most 142 bytes each: together with the metadata
// they stay within the bytes that look reads.
const MaxHolds = 4

type metadata struct {
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

// EncodeRecord returns the caller's part of a job's record: Holds, metadata and payload. The offer
// script adds Of and Shared.
func EncodeRecord(j Job) ([]byte, error) {
	m := metadata{Operation: j.Operation, Client: j.Client, Tier: j.Tier, Priority: j.Priority,
		Traceparent: j.Traceparent, Fingerprint: j.Fingerprint, Weight: j.Weight,
		Callback: j.Callback, NoStore: j.NoStore}
	if m.Priority == Normal {
		m.Priority = ""
	}
	if m.Weight == 1 {
		m.Weight = 0 // the usual weight takes no bytes
	}
	head, err := marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode job %s: %w", j.ID, err)
	}
	if len(j.Callback) > MaxCallback {
		return nil, fmt.Errorf("encode job %s: its callback takes %d bytes, over %d", j.ID,
			len(j.Callback), MaxCallback)
	}
	if n := len(head) - len(j.Callback); n > maxMetadata {
		return nil, fmt.Errorf("encode job %s: its metadata takes %d bytes, over %d", j.ID, n,
			maxMetadata)
	}
	if len(j.Holds.Keys) > MaxHolds {
		return nil, fmt.Errorf("encode job %s: it holds %d permits, over %d", j.ID,
			len(j.Holds.Keys), MaxHolds)
	}
	out := make([]byte, 0, 2+len(head)+1+len(j.Payload)+150*len(j.Holds.Keys))
	if holds := j.Holds.Text(); holds != "" {
		for _, part := range append([]string{j.Holds.Member}, j.Holds.Keys...) {
			if strings.ContainsAny(part, "@# ") {
				return nil, fmt.Errorf("encode job %s: permit %q has a blank, an @ or a #", j.ID,
					part)
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

// marshal doesn't escape HTML, so that an & in a callback takes only one byte.
func marshal(m metadata) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(m)
	return bytes.TrimSuffix(out.Bytes(), []byte{'\n'}), err
}

// Times are the numbers of a record.
type Times struct {
	Accepted, StartBy, EndBy time.Time
	Keep                     time.Duration
}

var errRecord = errors.New("malformed job record")

// DecodeRecord reads the whole record of the job with this id, or its beginning up to at least the
// end of the metadata. The payload is the rest of data, and shares its memory.
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
	_, rest, found := bytes.Cut(rest, []byte{' '}) // the client tag, which only scripts need
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
	var m metadata
	if err := json.Unmarshal(head, &m); err != nil {
		return Job{}, Times{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	if m.Priority == "" {
		m.Priority = Normal
	}
	if m.Weight == 0 {
		m.Weight = 1
	}
	t := Times{
		Accepted: time.UnixMicro(numbers[0]),
		StartBy:  time.UnixMicro(numbers[1]),
		EndBy:    time.UnixMicro(numbers[2]),
		Keep:     time.Duration(numbers[3]) * time.Millisecond,
	}
	j.Operation, j.Client, j.Tier, j.Priority = m.Operation, m.Client, m.Tier, m.Priority
	j.Weight, j.Traceparent, j.Fingerprint = m.Weight, m.Traceparent, m.Fingerprint
	j.Callback, j.NoStore = m.Callback, m.NoStore
	j.Payload, j.CreatedAt = payload, t.Accepted
	return j, t, nil
}

// readMark reads one of a record's marks. Only scripts need $ and !.
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
