/* Small products of matrices, which stay in registers and the nearest cache. */

#ifndef DUAL_ATTENTION_PRODUCTS_H
#define DUAL_ATTENTION_PRODUCTS_H

#include "vectors.h"

#define CHAIN 1024 /* terms that are summed one after another, at most: sums of sums are rounded less */

/* Products c = a b of matrices, or added to c, in corners of a few rows and vectors whose sums are in registers.
   Numbers of a are `down` apart from row to row and `along` along a row; rows of b and c are ldb and ldc apart. */
#define OF_PRODUCT                                                                                            \
  Size depth, const float *a, Size down, Size along, const float *b, Size ldb, float *c, Size ldc, int add

INLINE void corner(const int rows, const int vectors, OF_PRODUCT) {
  Vector sum[TALL][WIDE];
  UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++)
    sum[i][v] = ALL(0.0f);
  for (Size k = 0; k < depth; k++) {
    Vector row[WIDE];
    UNROLL for (int v = 0; v < vectors; v++) row[v] = load(b + k * ldb + v * LANES);
    UNROLL for (int i = 0; i < rows; i++) {
      Vector x = ALL(a[i * down + k * along]);
      UNROLL for (int v = 0; v < vectors; v++) sum[i][v] += x * row[v];
    }
  }
  UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++)
    store(c + i * ldc + v * LANES, add ? load(c + i * ldc + v * LANES) + sum[i][v] : sum[i][v]);
}

#define CORNER(rows, vectors)                                             \
  static void corner_##rows##_##vectors(OF_PRODUCT) {                     \
    corner(rows, vectors, depth, a, down, along, b, ldb, c, ldc, add);    \
  }
#define CORNERS(rows, vectors)          \
  for (; i + rows <= height; i += rows) \
    corner_##rows##_##vectors(depth, a + i * down, down, along, b, ldb, c + i * ldc, ldc, add);
#define PANEL(tallest, vectors)                                                                         \
  CORNER(tallest, vectors) CORNER(4, vectors) CORNER(2, vectors) CORNER(1, vectors)                     \
  static void panel_##vectors(Size height, OF_PRODUCT) {                                                \
    Size i = 0;                                                                                         \
    CORNERS(tallest, vectors) CORNERS(4, vectors) CORNERS(2, vectors) CORNERS(1, vectors)               \
  }

#if WIDE == 4
CORNER(8, 1)
CORNER(16, 1)
CORNER(4, 1)
CORNER(2, 1)
CORNER(1, 1)
static void panel_1(Size height, OF_PRODUCT) {
  Size i = 0;
  CORNERS(16, 1) CORNERS(8, 1) CORNERS(4, 1) CORNERS(2, 1) CORNERS(1, 1)
}
PANEL(8, 2)
PANEL(8, 3)
PANEL(6, 4)
#else
PANEL(8, 1)
PANEL(6, 2)
#endif

#define PANELS(vectors)                                                                  \
  for (; width - j >= vectors * LANES; j += vectors * LANES)                             \
    panel_##vectors(height, depth, a, down, along, b + j, ldb, c + j, ldc, add);

static void short_product(Size height, Size width, OF_PRODUCT) {
  Size j = 0;
#if WIDE == 4
  PANELS(4) PANELS(3)
#endif
  PANELS(2) PANELS(1)
}

/* The product; its width is a multiple of LANES. */
static void product(Size height, Size width, OF_PRODUCT) {
  short_product(height, width, least(depth, CHAIN), a, down, along, b, ldb, c, ldc, add);
  for (Size k = CHAIN; k < depth; k += CHAIN)
    short_product(height, width, least(depth - k, CHAIN), a + k * along, down, along, b + k * ldb, ldb, c, ldc, 1);
}

/* The same in each of some lanes by itself: c_ij = sum over k of a_ik b_jk, or added to it. Numbers of a are `a_row`
   apart from row to row and `a_next` along a row, and those of b and c likewise. */
#define OF_LANES                                                                                                  \
  Size depth, const float *a, Size a_row, Size a_next, const float *b, Size b_row, Size b_next, float *c, \
      Size c_row, Size c_next, int add

INLINE void lane_corner(const int rows, const int columns, OF_LANES) {
  Vector sum[8][4];
  UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < columns; j++)
    sum[i][j] = ALL(0.0f);
  for (Size k = 0; k < depth; k++) {
    Vector y[4];
    UNROLL for (int j = 0; j < columns; j++) y[j] = load(b + j * b_row + k * b_next);
    UNROLL for (int i = 0; i < rows; i++) {
      Vector x = load(a + i * a_row + k * a_next);
      UNROLL for (int j = 0; j < columns; j++) sum[i][j] += x * y[j];
    }
  }
  UNROLL for (int i = 0; i < rows; i++) UNROLL for (int j = 0; j < columns; j++)
    store(c + i * c_row + j * c_next, add ? load(c + i * c_row + j * c_next) + sum[i][j] : sum[i][j]);
}

#define LANE_CORNER(rows, columns)                                                                        \
  static void lane_corner_##rows##_##columns(OF_LANES) {                                                  \
    lane_corner(rows, columns, depth, a, a_row, a_next, b, b_row, b_next, c, c_row, c_next, add);         \
  }
LANE_CORNER(4, 2) LANE_CORNER(4, 1)
LANE_CORNER(2, 4) LANE_CORNER(2, 2) LANE_CORNER(2, 1)
LANE_CORNER(1, 4) LANE_CORNER(1, 2) LANE_CORNER(1, 1)

#define LANE_CORNERS(rows, columns)                                                                             \
  for (; j + columns <= width; j += columns)                                                                    \
    lane_corner_##rows##_##columns(depth, a + i * a_row, a_row, a_next, b + j * b_row, b_row, b_next,           \
                                   c + i * c_row + j * c_next, c_row, c_next, add);
#define LANE_ROWS(rows)                                                              \
  for (; i + rows <= height; i += rows) {                                            \
    Size j = 0;                                                                      \
    LANE_CORNERS(rows, 4) LANE_CORNERS(rows, 2) LANE_CORNERS(rows, 1)                \
  }

#if WIDE == 4
LANE_CORNER(8, 3) LANE_CORNER(8, 2) LANE_CORNER(8, 1)
LANE_CORNER(4, 4)
#else
LANE_CORNER(4, 3)
#endif

static void lane_product(Size lanes, Size height, Size width, OF_LANES) {
  for (Size v = 0; v < lanes; v += LANES, a += LANES, b += LANES, c += LANES) {
    Size i = 0;
#if WIDE == 4 /* eight rows read b, which no near cache holds, once for eight heads */
    for (; i + 8 <= height; i += 8) {
      Size j = 0;
      LANE_CORNERS(8, 3) LANE_CORNERS(8, 2) LANE_CORNERS(8, 1)
    }
    LANE_ROWS(4)
#else /* registers hold sums of four rows with three columns, and what is read */
    for (; i + 4 <= height; i += 4) {
      Size j = 0;
      LANE_CORNERS(4, 3) LANE_CORNERS(4, 2) LANE_CORNERS(4, 1)
    }
#endif
    LANE_ROWS(2) LANE_ROWS(1)
  }
}

/* Rows of some width, `stride` apart, times a factor: into rows ld apart, with zeros for what is missing of `rows`
   rows; with the rows in lanes, (width, lanes), zeros likewise; and from there to rows again. */
static void pack(const float *from, Size stride, Size given, Size width, float factor, float *to, Size rows, Size ld) {
  for (Size i = 0; i < rows; i++)
    for (Size e = 0; e < ld; e++) to[i * ld + e] = i < given && e < width ? from[i * stride + e] * factor : 0.0f;
}
static void pack_lanes(const float *from, Size stride, Size given, Size width, float factor, float *to, Size lanes) {
  for (Size i = 0; i < lanes; i++)
    for (Size e = 0; e < width; e++) to[e * lanes + i] = i < given ? from[i * stride + e] * factor : 0.0f;
}
static void unpack_lanes(const float *from, Size lanes, Size given, Size width, float factor, float *to, Size stride) {
  for (Size i = 0; i < given; i++)
    for (Size e = 0; e < width; e++) to[i * stride + e] = from[e * lanes + i] * factor;
}
static void write_rows(const float *from, Size ld, Size rows, Size width, float *to, Size stride, int add) {
  for (Size j = 0; j < rows; j++)
    for (Size e = 0; e < width; e++) to[j * stride + e] = from[j * ld + e] + (add ? to[j * stride + e] : 0.0f);
}

#endif
