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
//	<accepted> <start by> <end by> <keep> <client tag> [@<member>@<key>@<key>... ]{words}\n<payload>
//
// The numbers (µs since 1970, keep in ms) are written by the offer and redrive scripts on Redis's clock and read by the other
// scripts; member and keys are its Holds, which the script that ends the job gives back; the words are the rest of the Job as JSON; the payload is what the client sent, byte for byte.

// maxWords bounds the JSON of a record: the look script reads no further than 2 KiB, so that a status costs the
// same whatever the payload. Names and ids are bounded well below it by config and identity.
const maxWords = 900

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
}

// EncodeRecord returns what of a job's record the caller writes: words and payload.
func EncodeRecord(j Job) ([]byte, error) {
	w := words{Operation: j.Operation, Client: j.Client, Tier: j.Tier, Priority: j.Priority, Traceparent: j.Traceparent, Fingerprint: j.Fingerprint, Weight: j.Weight}
	if w.Priority == Normal {
		w.Priority = ""
	}
	if w.Weight == 1 {
		w.Weight = 0 // the usual one takes no bytes
	}
	head, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("encode job %s: %w", j.ID, err)
	}
	if len(head) > maxWords {
		return nil, fmt.Errorf("encode job %s: its words take %d bytes, over %d", j.ID, len(head), maxWords)
	}
	if len(j.Holds.Keys) > MaxHolds {
		return nil, fmt.Errorf("encode job %s: it holds %d places, over %d", j.ID, len(j.Holds.Keys), MaxHolds)
	}
	out := make([]byte, 0, len(head)+1+len(j.Payload)+150*len(j.Holds.Keys))
	if len(j.Holds.Keys) > 0 {
		for _, part := range append([]string{j.Holds.Member}, j.Holds.Keys...) {
			if strings.ContainsAny(part, "@ ") {
				return nil, fmt.Errorf("encode job %s: place %q has a blank or an @", j.ID, part)
			}
			out = append(append(out, '@'), part...)
		}
		out = append(out, ' ')
	}
	out = append(out, head...)
	out = append(out, '\n')
	return append(out, j.Payload...), nil
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
	var holds Holds
	if found && len(rest) > 0 && rest[0] == '@' {
		var places []byte
		places, rest, found = bytes.Cut(rest[1:], []byte{' '})
		parts := strings.Split(string(places), "@")
		holds = Holds{Member: parts[0], Keys: parts[1:]}
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
	return Job{ID: id, Operation: w.Operation, Client: w.Client, Tier: w.Tier, Priority: w.Priority, Payload: payload,
		CreatedAt: t.Accepted, Traceparent: w.Traceparent, Fingerprint: w.Fingerprint, Weight: w.Weight, Holds: holds}, t, nil
}
