/* Symbols by a row of a library for each pair.

   Shapes and names: as in relational_attention.c. */

#ifndef DUAL_ATTENTION_ROWS_H
#define DUAL_ATTENTION_ROWS_H

#include "weights.h"

/* Rows of the library of the pairs of a block, (J, lanes). */
static void find_places(const Call *x, int32_t *place, Size i0, Size given, Span s) {
  for (Size j = s.first; j < s.last; j++)
    for (Size i = 0; i < x->block; i++) {
      Size receiver = i0 + least(i, given - 1);
      int64_t row = x->index[receiver * x->index_strides[0] + j * x->index_strides[1]];
      if (row < 0 || row >= x->library) {
        __atomic_store_n(x->wrong, row, __ATOMIC_RELAXED);
        row = 0; /* the results are not used */
      }
      place[(j - s.first) * x->block + i] = row;
    }
}

/* Attended rows, (lanes, ld), of weights (J, lanes): some columns of them, for four receivers at a time. */
INLINE void some_rows(const int vectors, const float *table, Size ld, const int32_t *place, const float *a, Size lanes,
                      Size seen, float *to) {
  for (Size first = 0; !first || first < seen; first += CHAIN)
    for (Size i = 0; i < lanes; i += 4) {
      Vector sum[4][WIDE];
      UNROLL for (int l = 0; l < 4; l++) UNROLL for (int v = 0; v < vectors; v++) sum[l][v] = ALL(0.0f);
      for (Size j = first; j < least(first + CHAIN, seen); j++)
        UNROLL for (int l = 0; l < 4; l++) {
          const float *row = table + (Size)place[j * lanes + i + l] * ld;
          UNROLL for (int v = 0; v < vectors; v++) sum[l][v] += a[j * lanes + i + l] * load(row + v * LANES);
        }
      UNROLL for (int l = 0; l < 4; l++) UNROLL for (int v = 0; v < vectors; v++) {
        float *at = to + (i + l) * ld + v * LANES;
        store(at, first ? load(at) + sum[l][v] : sum[l][v]);
      }
    }
}
static void attend_rows(const float *table, Size ld, const int32_t *place, const float *a, Size lanes, Size seen,
                        float *to) {
  Size v = 0;
  for (; v + WIDE * LANES <= ld; v += WIDE * LANES) some_rows(WIDE, table + v, ld, place, a, lanes, seen, to + v);
  for (; v < ld; v += LANES) some_rows(1, table + v, ld, place, a, lanes, seen, to + v);
}
/* Sums of the weights of a block by row of the library, (K, lanes): of CHAIN senders at a time, for which `some` is memory
   after the first. */
static void sum_by_row(const Call *x, const int32_t *place, const float *a, Size seen, float *of_rows, float *some) {
  const Size L = x->block, size = x->library * L;
  for (Size first = 0; !first || first < seen; first += CHAIN) {
    float *to = first ? some : of_rows;
    for (Size e = 0; e < size; e++) to[e] = 0.0f;
    for (Size j = first; j < least(first + CHAIN, seen); j++)
      for (Size i = 0; i < L; i++) to[place[j * L + i] * L + i] += a[j * L + i];
    for (Size e = 0; first && e < size; e++) of_rows[e] += some[e];
  }
}
/* Adds the gradient of the table, and writes that of the weights, (J, lanes), from that of what was attended:
   (lanes, ld) and, in lanes, (width, lanes). `of_rows` is memory for (K, lanes), twice if there are many senders. */
static void rows_backward(const Call *x, const float *table, Size ld, const int32_t *place, const float *a, Size seen,
                          const float *g, const float *g_lanes, float *of_rows, float *dtable, float *da) {
  const Size L = x->block;
  sum_by_row(x, place, a, seen, of_rows, of_rows + x->library * L);
  product(x->library, ld, L, of_rows, L, 1, g, ld, dtable, ld, 1);
  product(x->library, L, x->width, table, ld, 1, g_lanes, L, of_rows, L, 0);
  for (Size j = 0; j < seen; j++)
    for (Size i = 0; i < L; i++) da[j * L + i] = of_rows[place[j * L + i] * L + i];
}

#endif
