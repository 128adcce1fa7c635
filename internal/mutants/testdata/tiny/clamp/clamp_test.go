package clamp

import "testing"

func TestBetween(t *testing.T) {
	if Between(1, 3, 5) != 3 || Between(4, 3, 5) != 4 {
		t.Fatal("not between")
	}
}

func TestSum(t *testing.T) {
	if Sum(4) != 10 {
		t.Fatal("not 10")
	}
}
