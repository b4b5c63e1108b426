package redistest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// counted returns the bytes that a record counts with, without those of its result
// (jobs/record.go); 0 if it isn't counted.
func counted(head string) int64 {
	for _, field := range strings.Split(head, " ")[min(5, strings.Count(head, " ")):] {
		if text, ok := strings.CutPrefix(field, "$"); ok {
			n, _ := strconv.ParseInt(text, 10, 64)
			return n
		}
		if strings.HasPrefix(field, "{") {
			break
		}
	}
	return 0
}

// stored checks the bytes counted for clients against the jobs on record.
func (b *books) stored() (wrong []string) {
	live, entries := map[string]int64{}, map[string]bool{} // by client; by key and member
	for _, id := range slices.Sorted(maps.Keys(b.heads)) {
		head := b.heads[id]
		n, client := counted(head), clientOf(head)
		if n == 0 {
			continue
		}
		if _, ends := b.ttls["job:"+id]; !ends {
			live[client] += n
			continue
		}
		n += b.sizes["result:"+id]
		entry := fmt.Sprintf("%s %d", id[max(0, len(id)-36):], n)
		entries["kept:"+client+" "+entry] = true
		// An expired one is removed when its client's next job comes.
		exp, err := strconv.ParseFloat(b.hashes["state:"+id]["exp"], 64)
		if _, there := b.zsets["kept:"+client][entry]; !there && (err != nil || exp > b.now) {
			wrong = append(wrong, fmt.Sprintf(
				"%s has ended with %d bytes, which aren't counted for client %s", id, n, client))
		}
	}
	for _, client := range slices.Sorted(maps.Keys(b.hashes["stored"])) {
		got := b.hashes["stored"][client]
		if got != strconv.FormatInt(live[client], 10) || live[client] == 0 {
			wrong = append(wrong, fmt.Sprintf(
				"%s bytes are counted for client %s, its jobs that live have %d",
				got, client, live[client]))
		}
		delete(live, client)
	}
	for _, client := range slices.Sorted(maps.Keys(live)) {
		wrong = append(wrong, fmt.Sprintf(
			"no bytes are counted for client %s, its jobs that live have %d", client, live[client]))
	}
	for _, name := range slices.Sorted(maps.Keys(b.zsets)) {
		if !strings.HasPrefix(name, "kept:") {
			continue
		}
		sum := 0.0
		for _, entry := range slices.Sorted(maps.Keys(b.zsets[name])) {
			_, text, found := strings.Cut(entry, " ")
			if !found {
				continue
			}
			n, _ := strconv.ParseFloat(text, 64)
			sum += n
			if b.zsets[name][entry] > b.now && !entries[name+" "+entry] {
				wrong = append(wrong,
					fmt.Sprintf("%s has %q, of no job that ended so", name, entry))
			}
		}
		if got := -b.zsets[name][""]; got != sum {
			wrong = append(wrong,
				fmt.Sprintf("%s says %.0f bytes, its jobs have %.0f", name, got, sum))
		}
	}
	return wrong
}
