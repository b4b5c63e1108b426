package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/forebay/forebay/internal/limits"
)

// The picture, in its own units: two panels over one axis of time.
const (
	width, height = 760, 300
	left          = 44  // of both panels
	perSecond     = 7.8 // along the axis
	ratesFoot     = 150
	perRequest    = 9.0 // of the upper panel, up
	levelsFoot    = 268
	levelsHeight  = 80.0
)

// style fits a light page and a dark one. It includes the background, since a page may be dark
// while its reader's system is light.
const style = `<style>
text{font:11px system-ui,sans-serif;fill:#1f2328}.title{font-size:14px;font-weight:600}` +
	`.quiet{fill:#59636e}.end{text-anchor:end}.mid{text-anchor:middle}
.ground{fill:#fff}.axis{stroke:#59636e}.grid{stroke:#d1d9e0;stroke-dasharray:2 3}` +
	`.offered{fill:#c9d1d9}.admitted{fill:#0969da}` +
	`.level{fill:none;stroke:#bc4c00;stroke-width:1.6}.amount{fill:#bc4c00}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.quiet{fill:#9198a1}` +
	`.ground{fill:#0d1117}.axis{stroke:#9198a1}.grid{stroke:#3d444d}.offered{fill:#3d444d}` +
	`.admitted{fill:#4493f8}.level{stroke:#f0883e}.amount{fill:#f0883e}}
</style>
`

func draw(l limits.Limit, s sight) []byte {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	x := func(second float64) float64 { return left + second*perSecond }
	seconds := len(s.offered)
	end := x(float64(seconds))
	offered, admitted := sum(s.offered), sum(s.admitted)

	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" `+
		`role="img" aria-labelledby="t d">`, width, height, width, height)
	p(`<title id="t">%s: %s</title>`, l.Algorithm, text(l))
	p(`<desc id="d">Of %d requests %d were admitted, at most %d within any %s.</desc>`,
		offered, admitted, s.most, seconds10())
	b.WriteString(style)
	p(`<rect class="ground" width="%d" height="%d" rx="6"/>`, width, height)
	p(`<text class="title" x="%d" y="22">%s</text>`, left, l.Algorithm)
	p(`<text class="quiet end" x="%.1f" y="22">%s; admitted %d of %d, at most %d within any `+
		`%s</text>`, end, text(l), admitted, offered, s.most, seconds10())

	from := 0
	for _, ph := range traffic {
		p(`<text class="quiet mid" x="%.1f" y="44">%s</text>`,
			x(float64(from)+float64(ph.seconds)/2), ph.name)
		from += ph.seconds
	}
	// the edges of windows
	for second := 0; second <= seconds; second += int(window / time.Second) {
		p(`<path class="grid" d="M%.1f 52V%d"/>`, x(float64(second)), levelsFoot)
		p(`<text class="quiet mid" x="%.1f" y="%d">%d s</text>`,
			x(float64(second)), levelsFoot+16, second)
	}

	for second, n := range s.offered {
		bar(&b, "offered", x(float64(second)), n)
		bar(&b, "admitted", x(float64(second)), s.admitted[second])
	}
	p(`<path class="axis" d="M%d %dH%.1f"/>`, left, ratesFoot, end)
	p(`<text class="quiet end" x="%d" y="%.1f">10/s</text><text class="quiet end" x="%d" `+
		`y="%d">0</text>`, left-5, ratesFoot-10*perRequest+4, left-5, ratesFoot+4)
	p(`<rect class="offered" x="%d" y="%d" width="9" height="9"/><text x="%d" `+
		`y="%d">offered</text>`, left+6, ratesFoot-84, left+19, ratesFoot-76)
	p(`<rect class="admitted" x="%d" y="%d" width="9" height="9"/><text x="%d" `+
		`y="%d">admitted</text>`, left+6, ratesFoot-68, left+19, ratesFoot-60)

	capacity := l.Capacity()
	y := func(n int64) float64 { return levelsFoot - levelsHeight*float64(n)/float64(capacity) }
	p(`<path class="axis" d="M%d %dH%.1f"/>`, left, levelsFoot, end)
	p(`<text class="quiet end" x="%d" y="%.1f">%d</text><text class="quiet end" x="%d" `+
		`y="%d">0</text>`, left-5, y(capacity)+4, capacity, left-5, levelsFoot+4)
	p(`<text class="amount" x="%d" y="%d">remaining</text>`, left+6, levelsFoot-levelsHeight-10)
	b.WriteString(`<path class="level" d="`)
	for i, v := range s.levels {
		if i == 0 {
			fmt.Fprintf(&b, "M%.1f %.1f", x(v.second), y(v.remaining))
		} else {
			fmt.Fprintf(&b, "H%.1fV%.1f", x(v.second), y(v.remaining))
		}
	}
	p(`H%.1f"/>`, end)
	p(`</svg>`)
	return b.Bytes()
}

func bar(b *bytes.Buffer, class string, x float64, n int) {
	if n == 0 {
		return
	}
	h := float64(n) * perRequest
	fmt.Fprintf(b, "<rect class=%q x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", class,
		x+0.6, ratesFoot-h, perSecond-1.2, h)
}

func text(l limits.Limit) string {
	switch {
	case l.Algorithm == limits.Concurrency:
		return fmt.Sprintf("%d jobs at a time, of %d s each", l.Amount, lasts/time.Second)
	case l.Burst != 0:
		return fmt.Sprintf("%d per %s, burst %d", l.Amount, seconds10(), l.Burst)
	default:
		return fmt.Sprintf("%d per %s", l.Amount, seconds10())
	}
}

func seconds10() string { return fmt.Sprintf("%d s", window/time.Second) }

func sum(list []int) (total int) {
	for _, n := range list {
		total += n
	}
	return total
}
