package client

import (
	"bufio"
	"bytes"
	"io"
	"math"
	"strings"
	"time"
)

// events reads server-sent events.
type events struct {
	lines *bufio.Scanner
	most  int64 // bytes of one event's data

	id    string        // of the last event that had one
	retry time.Duration // how long to wait before coming back, as last told
}

func newEvents(r io.Reader, most int64) *events {
	e := &events{lines: bufio.NewScanner(r), most: most}
	e.lines.Buffer(nil, int(min(most, math.MaxInt32)))
	e.lines.Split(splitLines())
	return e
}

// next returns the data of the next event that has any, and false at the stream's end. An event that the end cuts off is none.
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
			// It goes into a header field. Forebay's are numbers.
			if len(value) <= maxEventID && bytes.IndexFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) < 0 {
				id = string(value)
			}
		case "retry":
			if text := string(value); text != "" && strings.Trim(text, "0123456789") == "" {
				e.retry = seconds(text) / 1000 // it is in milliseconds
			}
		}
	}
	return nil, false
}

// maxEventID is far above any that Forebay gives.
const maxEventID = 255

// splitLines ends a line at \n, \r\n or \r, and after a \r doesn't wait for what follows. A line that the end cuts off is none.
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
