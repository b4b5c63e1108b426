// Package strictyaml reads YAML into structs. It takes a file literally or refuses it, and doesn't
// know what the values mean.
//
// Unknown and repeated keys, values of the wrong kind and numbers without their unit are problems.
// Each names the file, the line, the path of the key (backends.reports.drain.rate) and the mend,
// and all are found in one reading. A Report collects them, at most one a key, so that a value that
// wasn't understood isn't also reported as missing. A caller's own rules add to it.
//
// # Structs
//
// The tags of a struct define its keys:
//
//	key:"max_body"   the key of the field; other fields aren't read, except embedded structs
//	max:"20"         the most elements of a map or list; each map and list has this bound
//	absent:"text"    the meaning of the zero value, for Describe: the key is absent
//	default:"yaml"   the value of an absent key. In a struct that has an absent tag itself, the
//	                 default applies if the struct's own key is given
//	required:"text"  the key must be given; the text says why
//	range:"1 to 10"  the bounds of the value, or of each value of a list
//	words:"a, b"     the only valid values, or values of a list
//	scalar:"text"    the struct may also be given as one value, which this field takes. The text
//	                 lists the valid forms, for the error about a value of another form
//
// Read applies key, max, scalar and default. Report.Check applies the others, also to a struct that
// was made in code. A default and a bound are written as in the file.
//
// A value is read by its type: bool, int, int64, float64 and string, time.Duration, netip.Prefix,
// JSON, and all types that implement encoding.TextUnmarshaler. The error of UnmarshalText is the
// second half of a sentence whose subject is the value ("isn't a rate; write ..."), and doesn't
// repeat it. A type with the method Redacted() string is only shown by that text.
//
// # The environment
//
// ${NAME} inside a value stands for an environment variable, and $${ for a plain ${. It is replaced
// after the YAML was parsed, so it is text of that one value and never parsed as YAML. No problem,
// warning or description shows it: they show the file's text.
package strictyaml
