package engine

import "container/heap"

// indexed is a heap whose items know where they lie, so that any of them can be moved or taken out
// in logarithmic time.
type indexed[T any] struct {
	items []T
	less  func(a, b T) bool
	at    func(T) *int // where the item keeps its place; -1 while it is outside
}

func (h *indexed[T]) Len() int           { return len(h.items) }
func (h *indexed[T]) Less(i, j int) bool { return h.less(h.items[i], h.items[j]) }

func (h *indexed[T]) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*h.at(h.items[i]), *h.at(h.items[j]) = i, j
}

// Push implements heap.Interface; use add.
func (h *indexed[T]) Push(x any) {
	item := x.(T)
	*h.at(item) = len(h.items)
	h.items = append(h.items, item)
}

// Pop implements heap.Interface; use remove.
func (h *indexed[T]) Pop() any {
	last := len(h.items) - 1
	item := h.items[last]
	var zero T
	h.items[last] = zero
	h.items = h.items[:last]
	*h.at(item) = -1
	return item
}

func (h *indexed[T]) add(item T) { heap.Push(h, item) }

func (h *indexed[T]) remove(item T) {
	if i := *h.at(item); i >= 0 {
		heap.Remove(h, i)
	}
}

// place adds the item, or moves it to where its changed order puts it.
func (h *indexed[T]) place(item T) {
	if i := *h.at(item); i >= 0 {
		heap.Fix(h, i)
		return
	}
	heap.Push(h, item)
}

func (h *indexed[T]) top() (item T, ok bool) {
	if len(h.items) == 0 {
		return item, false
	}
	return h.items[0], true
}
