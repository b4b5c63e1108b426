// Package transfer defines which payloads are large, and how much time they may take to Redis and
// back.
//
// # Lanes
//
// Large payloads are sent apart from small ones. A call that requests share carries at most
// Together bytes. A payload over Small bytes has a call of its own: two at once for each line and
// eight for each process, on a quarter of the connections. So a small request never waits behind a
// large one. Large bodies are parsed on half of the processors.
package transfer

import "time"

const (
	// Small is the largest payload that shares a call with others and adds nothing to the call's
	// time: 64 KiB take half a millisecond of a gigabit link.
	Small = 64 << 10
	// Together bounds the bytes of one shared call: 1 MiB takes 9 ms of such a link, and Redis
	// about a millisecond.
	Together = 1 << 20

	// rate, in bytes per second, is the bandwidth that a large payload can count on: a gigabit link
	// shared by 60 of them.
	rate = 2 << 20
	// longest bounds the time that is added for one payload, so that the call fails while its
	// sender still waits. Clients and proxies commonly wait for 30 s.
	longest = 10 * time.Second
)

// Time returns how much a payload of that many bytes adds to the time that a call may take: nothing
// up to Small, half a second for each MiB beyond, 10 s at most.
func Time(bytes int) time.Duration {
	return min(time.Duration(max(0, bytes-Small))*time.Second/rate, longest)
}
