package main

import (
	"slices"
	"time"
)

// spread sums up a figure over several rounds.
type spread struct{ Median, Min, Max float64 }

// spreadOf sums up one figure or more.
func spreadOf(figures []float64) spread {
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

// quantile returns the smallest of the sorted values that a share q (0 to 1) of them doesn't
// exceed. It returns 0 if there is no value.
func quantile[T int64 | time.Duration](sorted []T, q float64) T {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// pace describes how evenly calls arrived.
type pace struct {
	Calls         int
	Rate          float64       // per second, by the time between the first and the last
	Tenth, Second int           // most in any window of 0.1 s and of 1 s
	Ten           int           // most in any window of 10 s
	Gap1, Gap99   time.Duration // quantiles of the time between one call and the next
}

// paceOf measures sorted arrivals (µs).
func paceOf(arrivals []int64) pace {
	p := pace{Calls: len(arrivals), Tenth: busiest(arrivals, 100_000),
		Second: busiest(arrivals, 1_000_000), Ten: busiest(arrivals, 10_000_000)}
	if len(arrivals) < 2 {
		return p
	}
	p.Rate = float64(len(arrivals)-1) / (float64(arrivals[len(arrivals)-1]-arrivals[0]) / 1e6)
	gaps := make([]int64, len(arrivals)-1)
	for i := range gaps {
		gaps[i] = arrivals[i+1] - arrivals[i]
	}
	slices.Sort(gaps)
	p.Gap1 = time.Duration(quantile(gaps, 0.01)) * time.Microsecond
	p.Gap99 = time.Duration(quantile(gaps, 0.99)) * time.Microsecond
	return p
}

// burstRate returns the rate of sorted arrivals (µs) that come in bursts, one per period. It is
// measured from the first arrival of one burst to the first arrival of the last one.
func burstRate(arrivals []int64, period time.Duration) float64 {
	var firsts []int
	for i, at := range arrivals {
		if i > 0 && at-arrivals[i-1] > period.Microseconds()/2 {
			firsts = append(firsts, i)
		}
	}
	if len(firsts) < 2 {
		return paceOf(arrivals).Rate // no bursts
	}
	first, last := firsts[0], firsts[len(firsts)-1]
	return float64(last-first) / (float64(arrivals[last]-arrivals[first]) / 1e6)
}

// busiest returns the largest number of sorted arrivals in any window [t, t+width).
func busiest(arrivals []int64, width int64) (most int) {
	first := 0
	for i, at := range arrivals {
		for arrivals[first] <= at-width {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
