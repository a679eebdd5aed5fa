/* Vectors of numbers, which GCC and Clang translate from the GNU C language to what the processor has. */

#ifndef DUAL_ATTENTION_VECTORS_H
#define DUAL_ATTENTION_VECTORS_H

#include <stdint.h>

#ifdef __AVX512F__
#define LANES 16 /* numbers in a vector */
#define WIDE 4   /* vectors side by side in the widest corner of a product */
#define TALL 16  /* rows of the tallest */
#else
#define LANES 8
#define WIDE 2
#define TALL 8
#endif

typedef int64_t Size;
typedef float Vector __attribute__((vector_size(LANES * 4)));
typedef int32_t Integers __attribute__((vector_size(LANES * 4)));
typedef uint32_t Naturals __attribute__((vector_size(LANES * 4)));
typedef float Loose __attribute__((vector_size(LANES * 4), aligned(4), may_alias)); /* anywhere in memory */

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
/* Not the sum with zero, which is another number than x = -0, so that compilers would add. */
#define ALL(x) ((x) - (Vector){0})

INLINE Vector load(const float *from) { return *(const Loose *)from; }
INLINE void store(float *to, Vector x) { *(Loose *)to = x; }
INLINE Size least(Size a, Size b) { return a < b ? a : b; }
INLINE Size most(Size a, Size b) { return a > b ? a : b; }
INLINE Size padded(Size x) { return (x + LANES - 1) / LANES * LANES; }

INLINE Integers lanes(void) {
  Integers place;
  for (int i = 0; i < LANES; i++) place[i] = i;
  return place;
}
/* All bits of the first `count` lanes. */
INLINE Integers lanes_below(Size count) { return lanes() < (int32_t)count; }
INLINE Vector larger(Vector a, Vector b) {
  Integers more = a > b;
  return (Vector)(((Integers)a & more) | ((Integers)b & ~more));
}
/* exp(x) of x <= 0, to 1e-7 of it, and zero below -87.3: a power of two, and a polynomial of what is left of x */
INLINE Vector exponential(Vector x) {
  const Vector rounding = ALL(12582912.0f); /* 1.5 * 2^23, next to which only whole numbers are floats */
  Vector t = x * 1.44269504f + rounding, whole = t - rounding;
  Integers power = (Integers)t - (Integers)rounding;
  Vector r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
  Vector y = r * 1.9875691500e-4f + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1.0f;
  return (Vector)((Integers)(y * (Vector)((power + 127) << 23)) & ~(x < -87.3f));
}

#endif
