/* Tiles of an x86 processor's matrix units (AMX), products of bfloat16 with sums in float32, and the packing of their
   factors. With EMULATED_AMX the same operations on tiles are plain C, for tests on any processor. */

#ifndef DUAL_ATTENTION_AMX_H
#define DUAL_ATTENTION_AMX_H

#include "vectors.h"

#include <string.h>

/* Lets the compiler know that memory is read and written: GCC's functions for tiles say so of a part of it at most. */
#define SEEN(memory) __asm__ volatile("" : : "r"(memory) : "memory")

typedef uint16_t Half; /* the bits of a bfloat16 */
#define SIDE 16        /* rows and columns of sums in a tile */
#define DEEP 32        /* numbers that a product sums at a time: a tile has 16 rows of 32, or of 16 pairs */

#ifdef EMULATED_AMX
typedef union { float sums[SIDE][SIDE]; Half halves[SIDE][DEEP]; } Tile;
static _Thread_local Tile tile[8];
typedef struct { int unused; } TileState;

static float float_of(Half x) {
  const union { uint32_t bits; float number; } of = {(uint32_t)x << 16};
  return of.number;
}
static void tile_dot(Tile *to, const Tile *a, const Tile *b) {
  for (int i = 0; i < SIDE; i++)
    for (int k = 0; k < DEEP; k++)
      for (int j = 0; j < SIDE; j++)
        to->sums[i][j] += float_of(a->halves[i][k]) * float_of(b->halves[k / 2][2 * j + k % 2]);
}
static void tile_copy(char *to, Size to_apart, const char *from, Size from_apart) {
  for (int i = 0; i < SIDE; i++) memcpy(to + i * to_apart, from + i * from_apart, 64);
}
#define TILE_ZERO(t) memset(&tile[t], 0, sizeof(Tile))
#define TILE_LOAD(t, from, apart) tile_copy((char *)&tile[t], 64, (const char *)(from), apart)
#define TILE_STORE(t, to, apart) tile_copy((char *)(to), apart, (const char *)&tile[t], 64)
#define TILE_DOT(to, a, b) tile_dot(&tile[to], &tile[a], &tile[b])
static void begin_tiles(TileState *before) { before->unused = 0; }
static void end_tiles(const TileState *before) { (void)before; }
static int has_tiles(void) { return 1; }

#else
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TILE_ZERO(t) _tile_zero(t)
#define TILE_LOAD(t, from, apart) _tile_loadd(t, from, apart)
#define TILE_STORE(t, to, apart) _tile_stored(t, to, apart)
#define TILE_DOT(to, a, b) _tile_dpbf16ps(to, a, b)

typedef struct { _Alignas(64) uint8_t bytes[64]; } TileState; /* what the unit is set to, as it loads and stores it */

/* Sets all tiles of this thread to 16 rows of 64 bytes. Others that use the unit may count on what they set before. */
static void begin_tiles(TileState *before) {
  TileState own = {{1}}; /* palette 1; bytes from the 16th on have widths, from the 48th on numbers of rows */
  for (int i = 0; i < 8; i++) own.bytes[16 + 2 * i] = 64, own.bytes[48 + i] = SIDE;
  _tile_storeconfig(before->bytes);
  SEEN(before->bytes);
  SEEN(own.bytes);
  _tile_loadconfig(own.bytes);
}
static void end_tiles(const TileState *before) {
  SEEN(before->bytes);
  _tile_loadconfig(before->bytes);
}

/* Whether the processor has the unit for bfloat16, and Linux lets this process use it, which has to be asked for. */
static int has_tiles(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
  const int units = d >> 22 & d >> 24 & 1; /* AMX-BF16 and AMX-TILE */
#ifdef __linux__
  return units && !syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* XTILEDATA */);
#else
  return units && 0;
#endif
}
#endif

/* Some sums: one or two tiles tall and wide. */
INLINE void sum_tiles(const int tall, const int wide, Size depth, const Half *a, Size lda, const Half *b, Size ldb,
                      float *c, Size ldc, int add) {
  float *below = c + SIDE * ldc;
  if (add) {
    TILE_LOAD(0, c, 4 * ldc);
    if (wide) TILE_LOAD(1, c + SIDE, 4 * ldc);
    if (tall) TILE_LOAD(2, below, 4 * ldc);
    if (tall && wide) TILE_LOAD(3, below + SIDE, 4 * ldc);
  } else {
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
  }
  for (Size k = 0; k < depth; k += DEEP, b += DEEP * ldb) {
    TILE_LOAD(4, a + k, 2 * lda);
    TILE_LOAD(6, b, 4 * ldb);
    TILE_DOT(0, 4, 6);
    if (wide) {
      TILE_LOAD(7, b + DEEP, 4 * ldb);
      TILE_DOT(1, 4, 7);
    }
    if (tall) {
      TILE_LOAD(5, a + SIDE * lda + k, 2 * lda);
      TILE_DOT(2, 5, 6);
    }
    if (tall && wide) TILE_DOT(3, 5, 7);
  }
  TILE_STORE(0, c, 4 * ldc);
  if (wide) TILE_STORE(1, c + SIDE, 4 * ldc);
  if (tall) TILE_STORE(2, below, 4 * ldc);
  if (tall && wide) TILE_STORE(3, below + SIDE, 4 * ldc);
}

/* Sums c = a b, or added to c. Rows of a are lda apart; b has pairs of its rows side by side, number by number, and
   ldb numbers to a row. The depth is a multiple of DEEP. Where height or width is no multiple of SIDE, there is memory
   up to the next. */
static void multiply_tiles(Size height, Size width, Size depth, const Half *a, Size lda, const Half *b, Size ldb,
                           float *c, Size ldc, int add) {
  SEEN(a);
  for (Size j = 0; j < width; j += 2 * SIDE)
    for (Size i = 0; i < height; i += 2 * SIDE) {
      const Half *from = a + i * lda, *of = b + 2 * j;
      float *to = c + i * ldc + j;
      const int tall = height - i > SIDE, wide = width - j > SIDE;
      if (tall && wide) sum_tiles(1, 1, depth, from, lda, of, ldb, to, ldc, add);
      else if (tall) sum_tiles(1, 0, depth, from, lda, of, ldb, to, ldc, add);
      else if (wide) sum_tiles(0, 1, depth, from, lda, of, ldb, to, ldc, add);
      else sum_tiles(0, 0, depth, from, lda, of, ldb, to, ldc, add);
    }
}

/* ---- rounding and packing ---- */

typedef uint32_t Pair __attribute__((may_alias));
typedef Half Halves __attribute__((vector_size(LANES * 2)));
typedef Half LooseHalves __attribute__((vector_size(LANES * 2), aligned(2), may_alias));

/* The nearest numbers with 16 bits, the even one of two, in the upper half of each lane. */
INLINE Naturals rounded(Vector x) {
  const Naturals bits = (Naturals)x, odd = bits >> 16 & 1;
  const Naturals is_number = (Naturals)(x == x);
  return ((bits + (0x7FFF + odd)) & is_number) | ((bits | 0x400000) & ~is_number);
}
INLINE void store_halves(Half *to, Vector x) {
  *(LooseHalves *)to = __builtin_convertvector(rounded(x) >> 16, Halves);
}
/* Numbers of two rows, side by side. */
INLINE void store_pairs(Half *to, Vector even, Vector odd) {
  store((float *)to, (Vector)(rounded(even) >> 16 | (rounded(odd) & 0xFFFF0000u)));
}
INLINE uint32_t half_of(float x) {
  const union { float number; uint32_t bits; } of = {x};
  const uint32_t number = of.bits + 0x7FFF + (of.bits >> 16 & 1), none = of.bits | 0x400000;
  return (x == x ? number : none) >> 16;
}

/* Numbers `down` apart from row to row and `along` along a row: into rows ld long, with zeros for what is missing; and
   with pairs of rows side by side. */
INLINE void some_halves(const float *from, const Size down, const Size along, Size given, Size width, Half *to,
                        Size rows, Size columns, Size ld) {
  for (Size i = 0; i < rows; i++, from += down, to += ld) {
    const Size count = i < given ? most(0, least(width, columns)) : 0;
    for (Size e = 0; e < count; e++) to[e] = half_of(from[e * along]);
    memset(to + count, 0, (columns - count) * sizeof(Half));
  }
}
static void pack_halves(const float *from, Size down, Size along, Size given, Size width, Half *to, Size rows,
                        Size ld) {
  if (along == 1) some_halves(from, down, 1, given, width, to, rows, ld, ld);
  else /* a few columns at a time, which the nearest cache holds */
    for (Size e = 0; e < ld; e += SIDE)
      some_halves(from + e * along, 1, along, given, width - e, to + e, rows, least(SIDE, ld - e), ld);
}
INLINE void some_pairs(const float *from, const Size down, const Size along, Size given, Size width, Half *to,
                       Size rows, Size ld) {
  for (Size i = 0; i < rows; i += 2, from += 2 * down, to += 2 * ld) {
    const Size count = i < given ? width : 0;
    Pair *pairs = (Pair *)to;
    if (i + 1 < given)
      for (Size e = 0; e < count; e++)
        pairs[e] = half_of(from[e * along]) | half_of(from[e * along + down]) << 16;
    else
      for (Size e = 0; e < count; e++) pairs[e] = half_of(from[e * along]);
    memset(pairs + count, 0, (ld - count) * sizeof(Pair));
  }
}
static void pack_pairs(const float *from, Size down, Size along, Size given, Size width, Half *to, Size rows, Size ld) {
  if (along == 1) some_pairs(from, down, 1, given, width, to, rows, ld);
  else some_pairs(from, 1, along, given, width, to, rows, ld);
}

#endif
