package topcallers

import (
	"math"
	"math/bits"
	"sync/atomic"
)

const (
	labelBits = 512
	maxLabels = 3000 // at which all bits are set, as is expected
)

// labelSet estimates how many distinct labels were added, by linear counting (Whang,
// Vander-Zanden, Taylor: A Linear-Time Probabilistic Counting Algorithm, 1990): of m bits,
// each label sets one, and with z bits that are 0
//
//	labels = m * ln(m/z)
type labelSet [labelBits / 64]atomic.Uint64

// add adds a label by its hash. It may run beside clear, which then may keep the label.
func (l *labelSet) add(hash uint64) {
	word, bit := &l[hash>>32%uint64(len(l))], uint64(1)<<(hash%64)
	if word.Load()&bit == 0 {
		word.Or(bit)
	}
}

func (l *labelSet) clear() {
	for i := range l {
		if l[i].Load() != 0 { // to store costs more
			l[i].Store(0)
		}
	}
}

// join adds the labels of another set.
func (l *labelSet) join(other *labelSet) {
	for i := range l {
		l[i].Or(other[i].Load())
	}
}

// estimate returns about how many labels there are, at most maxLabels.
func (l *labelSet) estimate() int {
	zero := labelBits
	for i := range l {
		zero -= bits.OnesCount64(l[i].Load())
	}
	if zero == 0 {
		return maxLabels
	}
	estimate := labelBits * math.Log(float64(labelBits)/float64(zero))
	return min(int(math.Round(estimate)), maxLabels)
}
