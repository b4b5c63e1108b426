package client

import (
	"bufio"
	"bytes"
	"io"
	"math"
	"strings"
	"time"
)

// events parses server-sent events.
type events struct {
	lines *bufio.Scanner
	most  int64 // bytes of one event's data

	id    string        // of the last event that had one
	retry time.Duration // how long to wait before reconnecting, as last sent
}

func newEvents(r io.Reader, most int64) *events {
	e := &events{lines: bufio.NewScanner(r), most: most}
	e.lines.Buffer(nil, int(min(most, math.MaxInt32)))
	e.lines.Split(splitLines())
	return e
}

// next returns the data of the next event that has any, and false at the end of the stream. An
// event cut off by the end is ignored.
func (e *events) next() ([]byte, bool) {
	var data []byte
	id := e.id
	for e.lines.Scan() {
		line := e.lines.Bytes()
		if len(line) == 0 {
			e.id = id
			if data != nil {
				return data, true
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":")) // a comment's name is empty
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if data != nil {
				data = append(data, '\n')
			}
			if int64(len(data)+len(value)) > e.most {
				return nil, false
			}
			data = append(data, value...)
		case "id":
			// It goes into a header field. Forebay's ids are numbers.
			unfit := func(r rune) bool { return r <= ' ' || r > '~' }
			if len(value) <= maxEventID && bytes.IndexFunc(value, unfit) < 0 {
				id = string(value)
			}
		case "retry":
			if text := string(value); text != "" && strings.Trim(text, "0123456789") == "" {
				e.retry = seconds(text) / 1000 // in milliseconds
			}
		}
	}
	return nil, false
}

// maxEventID is far longer than any id of Forebay.
const maxEventID = 255

// splitLines returns a SplitFunc that ends a line at \n, \r\n or \r. After a \r it doesn't wait for
// more. A line cut off by the end is ignored.
func splitLines() bufio.SplitFunc {
	afterCR := false
	return func(data []byte, _ bool) (int, []byte, error) {
		from := 0
		if afterCR && len(data) > 0 {
			afterCR = false
			if data[0] == '\n' {
				from = 1
			}
		}
		end := bytes.IndexAny(data[from:], "\r\n")
		if end < 0 {
			return from, nil, nil
		}
		afterCR = data[from+end] == '\r'
		return from + end + 1, data[from : from+end], nil
	}
}
