package main

import (
	"bytes"
	"fmt"
	"time"
)

// The picture, in its own units: one panel per way of coming back, over one axis of time.
const (
	width, height = 760, 454
	left, right   = 48, 744
	shown         = 40 * time.Second
	firstFoot     = 156 // of the first panel
	pitch         = 136 // from one foot to the next
	tall          = 90  // a bar of all clients
)

// style fits a light page and a dark one. It includes the background, since a page may be dark
// while its reader's system is light.
const style = `<style>
text{font:11px system-ui,sans-serif;fill:#1f2328}.title{font-size:14px;font-weight:600}` +
	`.name{font-weight:600}.quiet{fill:#59636e}.end{text-anchor:end}.mid{text-anchor:middle}
.ground{fill:#fff}.axis{stroke:#59636e}.grid{stroke:#d1d9e0;stroke-dasharray:2 3}` +
	`.refused{fill:#bc4c00}.admitted{fill:#0969da}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.quiet{fill:#9198a1}` +
	`.ground{fill:#0d1117}.axis{stroke:#9198a1}.grid{stroke:#3d444d}.refused{fill:#f0883e}` +
	`.admitted{fill:#4493f8}}
</style>
`

func draw(ways []way) []byte {
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" `+
		`role="img" aria-labelledby="t d">`, width, height, width, height)
	p(`<title id="t">%d clients refused together come back</title>`, clients)
	b.WriteString(`<desc id="d">`)
	for _, w := range ways {
		fmt.Fprintf(&b, "With %s: %s. ", w.name, w.outcome())
	}
	p(`</desc>`)
	b.WriteString(style)
	p(`<rect class="ground" width="%d" height="%d" rx="6"/>`, width, height)
	p(`<text class="title" x="%d" y="22">%d clients refused together, Retry-After: %d, %d `+
		`served a second</text>`, left, clients, asked/time.Second, time.Second/perToken)
	p(`<rect class="refused" x="%d" y="34" width="9" height="9"/><text x="%d" y="42">calls `+
		`refused</text>`, left, left+13)
	p(`<rect class="admitted" x="%d" y="34" width="9" height="9"/><text x="%d" y="42">and `+
		`admitted, in each %d ms</text>`, left+100, left+113, bin/time.Millisecond)
	for i, w := range ways {
		w.draw(&b, firstFoot+i*pitch)
	}
	p(`</svg>`)
	return b.Bytes()
}

// outcome describes the outcome in words.
func (w way) outcome() string {
	return fmt.Sprintf("%d calls until all are served, after %s; "+
		"at most %d in %d ms after the first",
		w.total, w.served.Round(time.Second), w.most, bin/time.Millisecond)
}

func (w way) draw(b *bytes.Buffer, foot int) {
	p := func(format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }
	p(`<text class="name" x="%d" y="%d">%s</text>`, left+8, foot-tall-6, w.name)
	p(`<text class="quiet end" x="%d" y="%d">%s</text>`, right, foot-tall-6, w.outcome())
	for second := 0; second <= int(shown/time.Second); second += 10 {
		x := left + (right-left)*second*int(time.Second)/int(shown)
		p(`<path class="grid" d="M%d %dV%d"/><text class="quiet mid" x="%d" y="%d">%d s</text>`,
			x, foot-tall, foot, x, foot+15, second)
	}
	p(`<path class="grid" d="M%d %dH%d"/>`, left, foot-tall, right)
	p(`<text class="quiet end" x="%d" y="%d">%d</text><text class="quiet end" x="%d" `+
		`y="%d">0</text>`, left-5, foot-tall+4, clients, left-5, foot+4)
	w.bars(b, "refused", w.calls, foot)
	w.bars(b, "admitted", w.admitted, foot)
	p(`<path class="axis" d="M%d %dH%d"/>`, left, foot, right)
}

// bars draws its bars as one path, since there are hundreds of them.
func (w way) bars(b *bytes.Buffer, class string, counts []int, foot int) {
	const bins = int(shown / bin)
	fmt.Fprintf(b, `<path class=%q d="`, class)
	for i, n := range counts[:min(len(counts), bins)] {
		if n == 0 {
			continue
		}
		// In hundredths, as integers: the same on every machine.
		x, next := left*100+(right-left)*100*i/bins, left*100+(right-left)*100*(i+1)/bins
		high := hundredths(tall * 100 * n / clients)
		fmt.Fprintf(b, "M%s %dv-%sh%sv%sz", hundredths(x), foot, high, hundredths(next-x), high)
	}
	fmt.Fprintln(b, `"/>`)
}

func hundredths(n int) string { return fmt.Sprintf("%d.%02d", n/100, n%100) }
