package main

import (
	"math"
	"testing"
)

// TestGradient compares back-propagation to finite differences, for every parameter of a small network.
func TestGradient(t *testing.T) {
	data, _, err := load()
	if err != nil {
		t.Fatal(err)
	}
	n := newNetwork(3, pixels, 7, 5, classes)
	for i := range n.params {
		n.params[i] += 0.01 * float64(1+i%7) // no unit sits just on ReLU's edge, where there is no derivative
	}
	batch := data[:11]
	n.gradient(batch, func(int) {})
	grad := append([]float64(nil), n.grad...)
	const h = 1e-5
	for i := range n.params {
		p := n.params[i]
		n.params[i] = p + h
		up := n.gradient(batch, func(int) {})
		n.params[i] = p - h
		down := n.gradient(batch, func(int) {})
		n.params[i] = p
		want := (up - down) / (2 * h)
		if math.Abs(grad[i]-want) > 1e-6*(1+math.Abs(want)) {
			t.Fatalf("parameter %d: gradient %v, finite difference %v", i, grad[i], want)
		}
	}
}

// TestGroupsFinishInOrder checks that a group's gradient does not change after ready was called for it, and that groups
// cover all parameters once.
func TestGroupsFinishInOrder(t *testing.T) {
	data, _, err := load()
	if err != nil {
		t.Fatal(err)
	}
	n := newNetwork(1, layerSizes...)
	early := make([]float64, len(n.params))
	covered := make([]int, len(n.params))
	next := 0
	n.gradient(data[:5], func(i int) {
		if i != next {
			t.Fatalf("group %d is ready, want %d", i, next)
		}
		next++
		from, to := n.span(n.groups()[i])
		copy(early[from:to], n.grad[from:to])
		for k := from; k < to; k++ {
			covered[k]++
		}
	})
	for k := range covered {
		if covered[k] != 1 {
			t.Fatalf("parameter %d is in %d groups", k, covered[k])
		}
		if early[k] != n.grad[k] {
			t.Fatalf("the gradient of parameter %d changed after it was ready", k)
		}
	}
	if next != len(n.groups()) || next < 3 {
		t.Errorf("%d groups were ready of %d", next, len(n.groups()))
	}
}

func TestSameSeedSameNetwork(t *testing.T) {
	a, b, c := newNetwork(1, 4, 3, 2), newNetwork(1, 4, 3, 2), newNetwork(2, 4, 3, 2)
	if distance(a.params, b.params) != 0 || distance(a.params, c.params) == 0 {
		t.Error("the parameters do not follow from the seed")
	}
}
