package main

import (
	"math"
	"math/rand/v2"
)

// A network is a multi-layer perceptron: fully connected layers with ReLU between them, softmax and cross-entropy at the
// end. All parameters are one slice, layer after layer; a layer holds, unit by unit, the unit's weights and its bias. So
// any range of units is a contiguous range of parameters.
type network struct {
	sizes  []int // inputs, hidden units, …, classes
	starts []int // where each layer's parameters start, and the end
	params []float64

	grad   []float64
	values [][]float64 // of each layer's inputs; the last are the outputs: [sample][unit]
	deltas [][]float64 // derivative of the loss by each layer's sums: [sample][unit]
}

// units are some of a layer's units. Their gradients are computed, and can be sent, together.
type units struct{ layer, from, to int }

// newNetwork draws the weights at random (He), the same ones for the same seed.
func newNetwork(seed uint64, sizes ...int) *network {
	n := &network{sizes: sizes, starts: make([]int, len(sizes))}
	for l := range n.layers() {
		n.starts[l+1] = n.starts[l] + sizes[l+1]*(sizes[l]+1)
	}
	n.params = make([]float64, n.starts[n.layers()])
	n.grad = make([]float64, len(n.params))
	n.values = make([][]float64, len(sizes))
	n.deltas = make([][]float64, n.layers())
	rng := rand.New(rand.NewPCG(seed, 0))
	for l := range n.layers() {
		for u := range sizes[l+1] {
			w, _ := n.unit(n.params, l, u)
			for i := range w {
				w[i] = rng.NormFloat64() * math.Sqrt(2/float64(sizes[l]))
			}
		}
	}
	return n
}

func (n *network) layers() int { return len(n.sizes) - 1 }

// unit returns the weights and the bias of a unit in a slice laid out like the parameters.
func (n *network) unit(p []float64, layer, u int) (weights []float64, bias *float64) {
	in := n.sizes[layer]
	at := n.starts[layer] + u*(in+1)
	return p[at : at+in : at+in], &p[at+in]
}

// span returns where the parameters of some units lie.
func (n *network) span(u units) (from, to int) {
	row := n.sizes[u.layer] + 1
	return n.starts[u.layer] + u.from*row, n.starts[u.layer] + u.to*row
}

// groups lists all units in the order in which gradient finishes them: the last layer first. The first layer, which is
// last, comes in two halves, so that the exchange of one can go on during the computation of the other.
func (n *network) groups() []units {
	var g []units
	for l := n.layers() - 1; l > 0; l-- {
		g = append(g, units{l, 0, n.sizes[l+1]})
	}
	half := n.sizes[1] / 2
	return append(g, units{0, 0, half}, units{0, half, n.sizes[1]})
}

// forward computes the outputs for a batch; values then holds them.
func (n *network) forward(batch []sample) {
	for l, size := range n.sizes {
		n.values[l] = resize(n.values[l], len(batch)*size)
	}
	for s := range batch {
		copy(n.values[0][s*pixels:], batch[s].image[:])
	}
	for l := range n.layers() {
		in, out := n.sizes[l], n.sizes[l+1]
		for s := range batch {
			x := n.values[l][s*in : (s+1)*in]
			y := n.values[l+1][s*out : (s+1)*out]
			for u := range y {
				w, b := n.unit(n.params, l, u)
				y[u] = dot(w, x) + *b
				if l+1 < n.layers() {
					y[u] = max(y[u], 0)
				}
			}
		}
	}
}

// gradient returns the loss, summed over the batch, and leaves the summed gradient in grad. It calls ready(i) as soon as the
// gradient of groups()[i] is final, and goes on with the next.
func (n *network) gradient(batch []sample, ready func(i int)) (loss float64) {
	n.forward(batch)
	loss = n.lossDeltas(batch)
	clear(n.grad)
	layer := n.layers() - 1
	for i, g := range n.groups() {
		for ; layer > g.layer; layer-- {
			n.propagate(layer, len(batch))
		}
		n.accumulate(g, len(batch))
		ready(i)
	}
	return loss
}

// lossDeltas computes softmax and cross-entropy, and the derivative of their sum by the outputs.
func (n *network) lossDeltas(batch []sample) (loss float64) {
	last := n.layers() - 1
	n.deltas[last] = resize(n.deltas[last], len(batch)*classes)
	for s := range batch {
		y := n.values[last+1][s*classes : (s+1)*classes]
		d := n.deltas[last][s*classes : (s+1)*classes]
		top, sum := y[0], 0.0
		for _, v := range y {
			top = max(top, v)
		}
		for i, v := range y {
			d[i] = math.Exp(v - top)
			sum += d[i]
		}
		for i := range d {
			d[i] /= sum
		}
		loss += math.Log(sum) + top - y[batch[s].digit]
		d[batch[s].digit]--
	}
	return loss
}

// propagate takes the deltas of a layer back to the one before it.
func (n *network) propagate(layer, batch int) {
	in, out := n.sizes[layer], n.sizes[layer+1]
	n.deltas[layer-1] = resize(n.deltas[layer-1], batch*in)
	clear(n.deltas[layer-1])
	for s := range batch {
		back := n.deltas[layer-1][s*in : (s+1)*in]
		for u, d := range n.deltas[layer][s*out : (s+1)*out] {
			w, _ := n.unit(n.params, layer, u)
			addScaled(back, d, w)
		}
		for i, v := range n.values[layer][s*in : (s+1)*in] {
			if v <= 0 {
				back[i] = 0
			}
		}
	}
}

// accumulate sums the gradients of some units over the batch.
func (n *network) accumulate(g units, batch int) {
	in, out := n.sizes[g.layer], n.sizes[g.layer+1]
	for u := g.from; u < g.to; u++ {
		w, b := n.unit(n.grad, g.layer, u)
		for s := range batch {
			d := n.deltas[g.layer][s*out+u]
			addScaled(w, d, n.values[g.layer][s*in:(s+1)*in])
			*b += d
		}
	}
}

// correct counts the samples for whose digit the network's output is highest.
func (n *network) correct(batch []sample) (count int) {
	n.forward(batch)
	for s := range batch {
		y := n.values[n.layers()][s*classes : (s+1)*classes]
		best := 0
		for i, v := range y {
			if v > y[best] {
				best = i
			}
		}
		if best == batch[s].digit {
			count++
		}
	}
	return count
}

func dot(a, b []float64) (sum float64) {
	b = b[:len(a)]
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// addScaled adds f × src to dst.
func addScaled(dst []float64, f float64, src []float64) {
	if f == 0 {
		return
	}
	src = src[:len(dst)]
	for i, v := range src {
		dst[i] += f * v
	}
}

// resize returns a slice of length n, in the old memory if it fits.
func resize(s []float64, n int) []float64 {
	if cap(s) < n {
		return make([]float64, n)
	}
	return s[:n]
}
