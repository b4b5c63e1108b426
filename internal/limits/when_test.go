package limits

import "testing"

func TestAConditionHoldsIfEachListHasTheRequestsName(t *testing.T) {
	t.Parallel()
	w := When{Tiers: Names{"free", "pro"}, Countries: Names{"DE"}}
	for _, c := range []struct {
		tier, operation, country string
		fits, may                bool
	}{
		{"free", "report", "DE", true, true},
		{"pro", "", "DE", true, true},
		{"free", "report", "FR", false, true},
		{"free", "report", "", false, true},
		{"vip", "report", "DE", false, false},
		{"", "report", "DE", false, false},
	} {
		fits, may := w.Fits(c.tier, c.operation, c.country), w.MayFit(c.tier, c.operation)
		if fits != c.fits || may != c.may {
			t.Errorf("%+v: fits %v, may %v", c, fits, may)
		}
	}
	of := When{Operations: Names{"report"}}
	if of.Fits("free", "", "") || !of.Fits("free", "report", "") {
		t.Error("a request without an operation is one for a report")
	}
}

func TestConditionsOverlapUnlessAListKeepsThemApart(t *testing.T) {
	t.Parallel()
	w := When{Tiers: Names{"free", "pro"}, Operations: Names{"report"}}
	for _, c := range []struct {
		other When
		want  bool
	}{
		{When{}, true},
		{When{Tiers: Names{"pro"}}, true},
		{When{Tiers: Names{"vip"}}, false},
		{When{Tiers: Names{"free"}, Operations: Names{"export"}}, false},
		{When{Countries: Names{"DE"}}, true},
	} {
		if w.Overlaps(c.other) != c.want || c.other.Overlaps(w) != c.want {
			t.Errorf("%+v: %v and %v", c.other, w.Overlaps(c.other), c.other.Overlaps(w))
		}
	}
}
