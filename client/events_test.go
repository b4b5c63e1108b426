package client

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// Events in the forms of the specification, with any line ends and in any pieces.
func TestEventsAreParsedAsSpecified(t *testing.T) {
	t.Parallel()
	// an event
	text := ":a comment\n\nretry: 1500\nretry: soon\nid: 1\nevent: status\ndata: one\n\n" +
		"id: 2\n\n" + // no event, but the last id is 2 from here on
		// the id is cleared by a field without a value
		"data:two\nid\ndata\ndata:  three\nunknown: x\n\n" +
		"id: 5 6\ndata: four\nid:7\n\n" +
		"id: 8\ndata: cut off\n"
	type read struct {
		data, id string
		retry    time.Duration
	}
	const retry = 1500 * time.Millisecond
	want := []read{{"one", "1", retry}, {"two\n\n three", "", retry}, {"four", "7", retry}}
	for _, end := range []string{"\n", "\r\n", "\r"} {
		for _, size := range []int{1, 2, 7, 1000} {
			var got []read
			e := newEvents(pieces{strings.NewReader(strings.ReplaceAll(text, "\n", end)), size},
				1<<10)
			for data, more := e.next(); more; data, more = e.next() {
				got = append(got, read{string(data), e.id, e.retry})
			}
			if !slices.Equal(got, want) || e.id != "7" {
				t.Errorf("%q in pieces of %d: %v, then %s", end, size, got, e.id)
			}
		}
	}
}

// pieces reads at most size bytes at once.
type pieces struct {
	io.Reader
	size int
}

func (p pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.size)]) }

// An event is returned as soon as its last line is there, even if lines end with \r.
func TestAnEventIsReturnedWithoutWaitingForMore(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"data: x\r\r", "data: x\n\n", "data: x\r\n\r\n"} {
		r, w := io.Pipe()
		go io.WriteString(w, text)
		if data, more := newEvents(r, 1<<10).next(); !more || string(data) != "x" {
			t.Errorf("%q: %q", text, data)
		}
		r.Close()
	}
}

// Any stream is parsed in pieces as it is whole, and within the bounds.
func FuzzEvents(f *testing.F) {
	for _, text := range []string{
		"data: x\n\n", "id: 1\rdata: x\r\n\r\n:\n", "retry: 99999999999999999999\n\n",
		"data\n\ndata:\n\n", "\xef\xbb\xbfdata: x\n\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const most = 1 << 12
		read := func(r io.Reader) (all []string) {
			e := newEvents(r, most)
			for data, more := e.next(); more; data, more = e.next() {
				if len(data) == 0 || len(data) > most || len(e.id) > maxEventID || e.retry < 0 {
					t.Fatalf("%d bytes of data, id %q, retry %v", len(data), e.id, e.retry)
				}
				all = append(all, e.id+"\n"+string(data))
			}
			return all
		}
		whole, parts := read(strings.NewReader(text)), read(pieces{strings.NewReader(text), 1})
		if !slices.Equal(whole, parts) {
			t.Errorf("%q whole, %q in pieces", whole, parts)
		}
	})
}
