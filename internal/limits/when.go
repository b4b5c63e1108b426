package limits

import "slices"

// Names is a list of names. The empty list stands for all names.
type Names []string

// Have reports whether a name is in the list.
func (n Names) Have(name string) bool { return len(n) == 0 || slices.Contains(n, name) }

// When is a condition on requests: each list must contain the request's value. Package strictyaml
// reads its tags, which are the keys of the config's file.
type When struct {
	Tiers Names `key:"tier" max:"1000" absent:"every tier"`
	// Operations leave out requests without an operation, such as those for a job's status.
	Operations Names `key:"operation" max:"1000" absent:"every operation"`
	// Countries are two capital letters each (ISO 3166-1). A caller whose country isn't known is in
	// none.
	Countries Names `key:"country" max:"250" absent:"every country"`
}

// Fits reports whether a request meets the condition.
func (w When) Fits(tier, operation, country string) bool {
	return w.MayFit(tier, operation) && w.Countries.Have(country)
}

// MayFit reports whether a tier's request for an operation meets the condition if it comes from the
// right country.
func (w When) MayFit(tier, operation string) bool {
	return w.Tiers.Have(tier) && w.Operations.Have(operation)
}

// Overlaps reports whether a request can meet both conditions.
func (w When) Overlaps(other When) bool {
	return w.Tiers.overlap(other.Tiers) && w.Operations.overlap(other.Operations) &&
		w.Countries.overlap(other.Countries)
}

func (n Names) overlap(other Names) bool {
	return len(n) == 0 || slices.ContainsFunc(n, other.Have)
}
