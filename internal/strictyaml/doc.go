// Package strictyaml reads YAML into structs. It refuses a file that isn't exactly what the structs
// define, and doesn't know what the values mean.
//
// Unknown and doubled keys, values of the wrong kind and numbers without their unit are problems.
// Each names the file, the line, the path of the key (backends.reports.drain.rate) and the
// correction, and all of them are found in one reading. A Report collects them, at most one a key,
// so that a value that wasn't understood isn't also reported as missing. Callers add the problems
// that their own rules find.
//
// # Structs
//
// The tags of a struct define its keys:
//
//	key:"max_body"   the key of the field; other fields aren't read, except embedded structs
//	max:"20"         the most elements of a map or list; each map and list has this bound
//	absent:"text"    what the zero value means, for Describe: the key isn't there
//	default:"yaml"   what holds where the key isn't given; in a struct that has an absent tag,
//	                 where its own key is given
//	required:"text"  the key must be given; the text says what for
//	range:"1 to 10"  the bounds of the value, or of each value of a list
//	words:"a, b"     the only values that there are, or values of a list
//	scalar:"text"    the struct may also be given as one value, which this field takes. The text
//	                 says which forms there are, where a value has another
//
// Read applies key, max, scalar and default. Report.Check applies the others, also to a struct that
// was made in code. Defaults and bounds are written as in the file.
//
// These types can be read: bool, int, int64, float64 and string, time.Duration, netip.Prefix, JSON,
// and all that implement encoding.TextUnmarshaler. The error of UnmarshalText is the second half of
// a sentence whose subject is the value ("isn't a rate; write ..."), and doesn't repeat the value.
// If a type has the method Redacted() string, only that text of its values is shown.
//
// # The environment
//
// ${NAME} inside a value stands for an environment variable, and $${ for a plain ${. It is replaced
// after the YAML was parsed, so its value is part of that one value and never parsed as YAML.
// Problems, warnings and descriptions show the file's text instead.
package strictyaml
