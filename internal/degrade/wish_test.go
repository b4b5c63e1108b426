package degrade_test

import (
	"strings"
	"testing"
	"time"

	"github.com/forebay/forebay/internal/degrade"
)

func TestCacheControlIsReadAsAWish(t *testing.T) {
	t.Parallel()
	none := degrade.Wish{}
	refuse := degrade.Wish{NoCache: true}
	within := func(seconds int64) degrade.Wish {
		return degrade.Wish{MaxStale: time.Duration(seconds) * time.Second, HasMaxStale: true}
	}
	young := func(seconds int64) degrade.Wish {
		return degrade.Wish{MaxAge: time.Duration(seconds) * time.Second, HasMaxAge: true}
	}
	for _, c := range []struct {
		lines string // separated by |
		want  degrade.Wish
	}{
		{``, none},
		{`no-cache`, refuse},
		{`No-Cache`, refuse},
		{"\t no-store ", degrade.Wish{NoCache: true, NoStore: true}},
		{`max-age=0,no-cache`, degrade.Wish{NoCache: true, HasMaxAge: true}},
		{`foo="a, b", no-cache`, refuse},
		{`max-age=0|no-cache`, degrade.Wish{NoCache: true, HasMaxAge: true}},
		{`min-fresh=5|no-cache`, refuse},
		{`only-if-cached`, degrade.Wish{OnlyIfCached: true}},
		{`Only-If-Cached, max-stale=60`,
			degrade.Wish{OnlyIfCached: true, MaxStale: time.Minute, HasMaxStale: true}},
		{`max-age=60`, young(60)}, {`MAX-AGE = "60"`, young(60)},
		{`max-age=60, max-age=0`, young(0)}, {`max-age`, none}, {`max-age=-1`, none},
		{`max-age=60, max-stale=30`, degrade.Wish{MaxAge: time.Minute, HasMaxAge: true,
			MaxStale: 30 * time.Second, HasMaxStale: true}},
		{`no-cache="Set-Cookie"`, refuse},
		{`,,no-cache,,`, refuse},
		{`max-stale=60`, within(60)},
		{`MAX-STALE=60`, within(60)},
		{`max-stale="60"`, within(60)},
		{`max-stale = 60`, within(60)},
		{`max-stale=0`, within(0)},
		{`max-stale=60, max-stale=30|max-stale=90`, within(30)},
		{`max-stale=60, no-cache`,
			degrade.Wish{NoCache: true, MaxStale: time.Minute, HasMaxStale: true}},
		{`max-stale=99999999999999999999999`, within(1 << 31)},
		{`max-stale`, none}, // any age is accepted
		{`max-stale, max-stale=5`, within(5)},

		{`max-stale=`, none}, {`max-stale=-1`, none}, {`max-stale=1.5`, none},
		{`max-stale=x`, none}, {`max-stale="`, none},
		{`max-stale=1 2`, none}, {`max-stale=0x10`, none}, {`max-stale=٣`, none},
		{`foo="a,no-cache,b"`, none}, {`foo="a\",no-cache,b"`, none}, {`foo="no-cache`, none},
		{`no-cachet`, none}, {`x-no-cache`, none}, {`no cache`, none}, {`=`, none}, {`"`, none},
		{`\`, none}, {`"\`, none}, {"\x00", none},
	} {
		if got := degrade.ParseCacheControl(strings.Split(c.lines, "|")); got != c.want {
			t.Errorf("%q: %+v, want %+v", c.lines, got, c.want)
		}
	}
	if got := degrade.ParseCacheControl(nil); got != none {
		t.Errorf("without the field: %+v", got)
	}
}

func FuzzParseCacheControl(f *testing.F) {
	for _, line := range []string{`no-cache`, `max-stale=60, foo="a,b\"", no-store`, `"`, `=,=`} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		w := degrade.ParseCacheControl([]string{line})
		if w.MaxStale < 0 || w.MaxStale > 1<<31*time.Second || !w.HasMaxStale && w.MaxStale != 0 ||
			w.MaxAge < 0 || w.MaxAge > 1<<31*time.Second || !w.HasMaxAge && w.MaxAge != 0 {
			t.Errorf("%q: %+v", line, w)
		}
		// More lines only ever narrow.
		more := degrade.ParseCacheControl([]string{line, "max-stale=7"})
		if more.NoCache != w.NoCache || !more.HasMaxStale || more.MaxStale > 7*time.Second {
			t.Errorf("%q with max-stale=7: %+v", line, more)
		}
	})
}
