package adminapi

import (
	"fmt"
	"testing"
	"time"
)

func TestABrakeGivesWayByTheSecondAndForgetsNoAddressForAnother(t *testing.T) {
	t.Parallel()
	var b brake
	now := time.Now()
	wrong, right := func() bool { return false }, func() bool { return true }
	for n := range wrongAtOnce {
		if _, wait := b.try("a", now, wrong); wait != 0 {
			t.Fatalf("wrong token %d waits %v", n, wait)
		}
	}
	if ok, wait := b.try("a", now, right); ok || wait != wrongEvery {
		t.Errorf("got %v, %v", ok, wait)
	}
	if ok, _ := b.try("a", now.Add(wrongEvery), right); !ok {
		t.Error("a second later there's no room")
	}
	// A flood of addresses takes no more memory, and loosens no brake.
	for n := range maxBraked + 100 {
		b.try(fmt.Sprint(n), now, wrong)
	}
	if len(b.until) > maxBraked+1 {
		t.Errorf("%d addresses are known", len(b.until))
	}
	if _, wait := b.try("a", now, wrong); wait == 0 {
		t.Error("the address was forgotten")
	}
	if _, wait := b.try("new", now.Add(time.Hour), wrong); wait != 0 || len(b.until) > 1 {
		t.Errorf("an hour later: wait %v, %d addresses", wait, len(b.until))
	}
}
