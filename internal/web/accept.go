package web

import (
	"strconv"
	"strings"
)

// WantsStream reports whether a request's Accept lines name server-sent events, and prefer no other
// form of a status. A wildcard doesn't ask for a stream: clients that can't read one send it too.
func WantsStream(lines []string) bool {
	const stream, plain = "text/event-stream", "application/json"
	wish := Quality(lines, stream)
	return wish > 0 && wish >= Quality(lines, plain, "application/*", "*/*")
}

// Quality is the weight that Accept lines give to the first of the ranges that they name (RFC 9110,
// section 12.5.1), in thousandths; 0 if they name none.
func Quality(lines []string, ranges ...string) int {
	for _, want := range ranges {
		for _, line := range lines {
			for line != "" {
				var item string
				item, line = CutListItem(line)
				kind, parameters, _ := strings.Cut(item, ";")
				if strings.EqualFold(strings.Trim(kind, " \t"), want) {
					return weight(parameters)
				}
			}
		}
	}
	return 0
}

// weight reads the q of a media range's parameters, in thousandths; 1000 if there is none. A
// malformed q counts as 0, since it can't express a preference.
func weight(parameters string) int {
	for parameters != "" {
		var parameter string
		parameter, parameters, _ = strings.Cut(parameters, ";")
		name, value, _ := strings.Cut(parameter, "=")
		if !strings.EqualFold(strings.Trim(name, " \t"), "q") {
			continue
		}
		q, err := strconv.ParseFloat(strings.Trim(value, " \t"), 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 0
		}
		return int(q * 1000)
	}
	return 1000
}
