package redistest

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/forebay/forebay/internal/jobs"
)

// mark returns the first of a record's marks (jobs/record.go). It may mark a subscription, or a job
// that has subscriptions.
func mark(head string) string {
	if fields := strings.SplitN(head, " ", 7); len(fields) == 7 {
		return fields[5]
	}
	return ""
}

// jobOf returns the job of a subscription's record; "" for a job's record.
func jobOf(head string) string {
	of, _ := strings.CutPrefix(mark(head), "=")
	if of == mark(head) {
		return ""
	}
	return of
}

// joined checks the names under which jobs are joined against the jobs.
func (b *books) joined() (wrong []string) {
	for _, join := range slices.Sorted(maps.Keys(b.joints)) {
		id := b.joints[join]
		_, ends := b.ttls["job:"+id]
		if _, belt := b.ttls["joint:"+join]; !belt {
			wrong = append(wrong, fmt.Sprintf("joint:%s has no TTL", join))
		}
		if b.heads[id] == "" || ends || b.hashes["shares:"+id]["join"] != join {
			wrong = append(wrong,
				fmt.Sprintf("joint:%s leads to %s, which can't be joined", join, id))
		}
	}
	return wrong
}

// subscriptions checks jobs and the subscriptions in them against each other.
func (b *books) subscriptions() (wrong []string) {
	for _, name := range slices.Sorted(maps.Keys(b.hashes)) {
		id, ok := strings.CutPrefix(name, "shares:")
		if !ok {
			continue
		}
		_, ends := b.ttls["job:"+id]
		_, endsToo := b.ttls[name]
		if mark(b.heads[id]) != "&" || ends != endsToo {
			wrong = append(wrong,
				fmt.Sprintf("%s is of no shared job, or only one of them ends", name))
		}
		for _, sub := range slices.Sorted(maps.Keys(b.hashes[name])) {
			client := strings.TrimSuffix(b.hashes[name][sub], "!")
			head := b.shared[sub]
			if sub != "join" &&
				(jobOf(head) != id || clientOf(head) != client) {
				wrong = append(wrong, fmt.Sprintf("%s names %s of client %s, whose record says %q",
					name, sub, client, head))
			}
		}
	}
	for _, name := range b.names {
		id, ok := strings.CutPrefix(name, "callers:")
		_, ends := b.ttls["shares:"+id]
		_, endsToo := b.ttls[name]
		if ok && (b.hashes["shares:"+id] == nil || ends != endsToo) {
			wrong = append(wrong,
				fmt.Sprintf("%s is of no shared job, or only one of them ends", name))
		}
	}
	for _, sub := range slices.Sorted(maps.Keys(b.shared)) {
		of := jobOf(b.shared[sub])
		_, ends := b.ttls["job:"+sub]
		_, jobEnds := b.ttls["job:"+of]
		_, live := b.hashes["shares:"+of][sub]
		state := b.states[sub]
		switch {
		case state != "" && (state != jobs.Canceled || !ends || live):
			wrong = append(wrong, fmt.Sprintf(
				"subscription %s is %s by itself; it ends: %v, counts for its job: %v",
				sub, state, ends, live))
		case state == "" && !live:
			wrong = append(wrong, fmt.Sprintf("subscription %s counts for no job", sub))
		case state == "" && ends != jobEnds:
			wrong = append(wrong, fmt.Sprintf("subscription %s ends: %v; its job %s: %v",
				sub, ends, of, jobEnds))
		}
	}
	return wrong
}

// entrySize is the size of a job's entry in a client's list: its time, and its id's UUID.
const entrySize = 7 + 16

// knownTag is the length of a client's tag. The tag of a caller without a key is longer, and it has
// no list.
const knownTag = 16

// listed checks clients' lists against the jobs on record.
func (b *books) listed() (wrong []string) {
	listed := map[string]bool{}
	record := func(id string) string { return b.heads[id] + b.shared[id] }
	byUUID := map[string]string{}
	ids := slices.Concat(slices.Collect(maps.Keys(b.heads)), slices.Collect(maps.Keys(b.shared)))
	for _, id := range ids {
		if uuid, ok := jobs.IDBytes(id); ok {
			byUUID[string(uuid[:])] = id
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.lists)) {
		client := strings.TrimPrefix(name, "mine:")
		for _, entry := range b.lists[name] {
			if len(entry) != entrySize {
				wrong = append(wrong, fmt.Sprintf("%s has an entry of %d bytes", name, len(entry)))
				continue
			}
			id := byUUID[entry[entrySize-16:]]
			if id == "" || b.acceptedAt(id, record(id)) != entry[:entrySize-16] {
				continue // a purged job's, whose id may be in use again
			}
			if listed[id] = true; clientOf(record(id)) != client {
				wrong = append(wrong,
					fmt.Sprintf("%s has %s, which is of client %s", name, id, clientOf(record(id))))
			}
		}
	}
	for _, id := range slices.Sorted(maps.Values(byUUID)) {
		if !listed[id] && mark(record(id)) != "&" && len(clientOf(record(id))) <= knownTag {
			wrong = append(wrong, fmt.Sprintf("%s is in no client's list", id))
		}
	}
	return wrong
}

// acceptedAt returns when a job on record was first accepted, as lists write it. A redriven job
// keeps that time in its state.
func (b *books) acceptedAt(id, record string) string {
	text, _, _ := strings.Cut(record, " ")
	if born := b.hashes["state:"+id]["born"]; born != "" {
		text = born
	}
	at, err := strconv.ParseUint(text, 10, 56)
	if err != nil {
		return ""
	}
	return string(binary.BigEndian.AppendUint64(nil, at)[1:])
}
