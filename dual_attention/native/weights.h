/* A call of relational attention, and the attention weights of a block of receivers.

   Shapes and names: as in relational_attention.c. */

#ifndef DUAL_ATTENTION_WEIGHTS_H
#define DUAL_ATTENTION_WEIGHTS_H

#include "products.h"
#include "threads.h"

#include <math.h>
#include <stddef.h>

typedef struct {
  Size batch, heads, groups, n, m, d, relations, p, width, library; /* library: K, or 0 for shared symbols */
  Size q_strides[3], k_strides[3], u_strides[2], w_strides[2], table_strides[3], symbols_strides[3]; /* B, H or G, N */
  Size dq_strides[3], dk_strides[3], dtable_strides[3], grad_symbols_strides[3];
  Size mask_strides[4], index_strides[2];
  Size causal, window, offset, threads; /* window: -1 for none */
  Size one_table;                       /* all examples have the same symbols, and their gradients are summed */
  Size block;                           /* receivers in a block, a multiple of LANES */
  uint64_t seed;
  uint64_t share; /* of 65536 that dropout keeps; 0 without dropout */
  double scale, rel_scale, factor;
  const float *q, *k, *u, *w, *table;
  const int64_t *index;
  const uint8_t *mask, *padding;
  const int64_t *receiver_segments, *sender_segments;
  int64_t *wrong; /* is given an entry of the index that is no row of the library */
  float *symbols, *attended; /* results, (B, H, N, d_h) and (B, H, N, R) */
  const float *grad_symbols, *grad_attended;
  float *dq, *dk, *du, *dw, *dtable;
  float *scratch;
  Team team; /* of threads.h */
} Call;

static Size table_rows(const Call *x) { return x->library ? x->library : x->m; }

typedef struct { Size first, last; } Span; /* senders that order lets any of some receivers see */

static Span span_of(const Call *x, Size start, Size stop) {
  Size first = 0, last = x->m;
  if (x->causal) last = least(last, stop + x->offset);
  if (x->window >= 0) {
    first = most(first, start + x->offset - x->window + 1);
    last = least(last, stop + x->offset + x->window - 1);
  }
  last = most(last, 0);
  return (Span){least(first, last), last};
}

/* Writes minus infinity where a pair is hidden, (J, lanes), and zero elsewhere; false if order hides nothing and
   there is nothing else to hide pairs. */
static int hide(const Call *x, float *to, Size b, Size h, Size i0, Size given, Span s) {
  const int ordered = (x->causal && s.last > i0 + x->offset + 1) || x->window >= 0;
  if (!ordered && !x->padding && !x->receiver_segments && !x->mask) return 0;
  for (Size j = s.first; j < s.last; j++)
    for (Size v = 0; v < x->block; v += LANES, to += LANES) {
      const Integers own = lanes() + (int32_t)(i0 + v + x->offset);
      Integers hidden = {0};
      if (x->causal) hidden |= own < (int32_t)j;
      if (x->window >= 0)
        hidden |= (own - (int32_t)j >= (int32_t)x->window) | ((int32_t)j - own >= (int32_t)x->window);
      if (x->padding && !x->padding[b * x->m + j]) hidden |= ~(Integers){0};
      const Size i1 = i0 + v, some = least(LANES, given - v);
      for (Size i = 0; x->receiver_segments && i < some; i++)
        hidden[i] |= -(x->receiver_segments[b * x->n + i1 + i] != x->sender_segments[b * x->m + j]);
      const uint8_t *mask = x->mask + b * x->mask_strides[0] + h * x->mask_strides[1] + j * x->mask_strides[3];
      for (Size i = 0; x->mask && i < some; i++) hidden[i] |= -!mask[(i1 + i) * x->mask_strides[2]];
      store(to, (Vector)((Integers)ALL(-INFINITY) & hidden));
    }
  return 1;
}

/* Minus infinity where a pair is hidden, whatever its score, and the score elsewhere. */
INLINE void hide_some(float *score, Vector hidden) {
  store(score, (Vector)(((Integers)load(score) & (hidden == 0.0f)) | (Integers)hidden));
}

/* Softmax over senders of scores (J, lanes); zeros for a receiver that sees nothing, and in lanes without one, whose
   scores are not numbers if a key is infinite. */
static void normalise(float *a, Size lanes, Size seen, Size given) {
  for (Size v = 0; v < lanes; v += LANES, a += LANES) {
    const Integers used = lanes_below(given - v);
    Vector top = ALL(-INFINITY), total = ALL(0.0f);
    for (Size j = 0; j < seen; j++) top = larger(load(a + j * lanes), top);
    top = (Vector)((Integers)top & ~(top == -INFINITY));
    for (Size first = 0; first < seen; first += 64) { /* sums of sums are rounded less */
      Vector some = ALL(0.0f);
      for (Size j = first; j < least(first + 64, seen); j++) {
        Vector y = (Vector)((Integers)exponential(load(a + j * lanes) - top) & used);
        store(a + j * lanes, y);
        some += y;
      }
      total += some;
    }
    Vector one_over = (Vector)((Integers)(1.0f / total) & ~(total == 0.0f));
    for (Size j = 0; j < seen; j++) store(a + j * lanes, load(a + j * lanes) * one_over);
  }
}

/* The gradient of some weights; zero where they are, which hides infinite ones of senders that are not seen. */
INLINE Vector of_seen(const float *gradient, Vector weights) {
  return (Vector)((Integers)load(gradient) & (weights != 0.0f));
}
/* The gradient of scores times a factor, (J, lanes), in place of that of the weights. */
static void through_softmax(const float *a, float *da, Size lanes, Size seen, float factor) {
  for (Size v = 0; v < lanes; v += LANES) {
    Vector mean = ALL(0.0f);
    for (Size first = 0; first < seen; first += 64) {
      Vector some = ALL(0.0f);
      for (Size j = first * lanes + v; j < least(first + 64, seen) * lanes; j += lanes)
        some += load(a + j) * of_seen(da + j, load(a + j));
      mean += some;
    }
    for (Size j = v; j < seen * lanes; j += lanes)
      store(da + j, load(a + j) * (of_seen(da + j, load(a + j)) - mean) * factor);
  }
}

/* Bits that seem random, from a seed and the number of a row (splitmix64). */
static uint32_t key_of(uint64_t seed, uint64_t row) {
  uint64_t z = seed + (row + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (z ^ (z >> 31)) >> 32;
}
/* Multiplies (H, J, lanes) by the factors of dropout, which depend on seed, example, head, receiver and sender only.
   Heads are `apart`. */
static void drop(const Call *x, float *a, Size apart, Size b, Size i0, Span s) {
  for (Size h = 0; x->share && h < x->heads; h++, a += apart)
    for (Size v = 0; v < x->block; v += LANES) {
      Naturals key;
      for (Size i = 0; i < LANES; i++) key[i] = key_of(x->seed, (b * x->heads + h) * x->n + i0 + v + i);
      for (Size j = s.first; j < s.last; j++) {
        Naturals z = key + (uint32_t)j * 0x9E3779B9u; /* mixed as MurmurHash3 mixes its last block */
        z = (z ^ (z >> 16)) * 0x85EBCA6Bu;
        z = (z ^ (z >> 13)) * 0xC2B2AE35u;
        Integers kept = (Integers)(((z ^ (z >> 16)) >> 16) < (uint32_t)x->share);
        float *to = a + (j - s.first) * x->block + v;
        store(to, load(to) * (Vector)(kept & (Integers)ALL((float)x->factor)));
      }
    }
}

#endif
