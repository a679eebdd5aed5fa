/* Products of linear layers in float32 that libraries are slow at: gradients of weights, which are sums over
   rows of both factors, and of a few rows, which take as long as it takes to read the weights.

   No sum depends on the number of threads. dual_attention/functional/compiled_products.py has the arguments. */

#include "products.h"
#include "threads.h"

/* ---- gradients of weights: c = a^T b ---- */

#define DEPTH 256 /* rows of a and b that are summed at a time */
#define TALLEST 6 /* columns of a: their sums with WIDE vectors of b fill most registers */
#define ACROSS (WIDE * LANES)
#define COLUMNS_OF_A 96  /* packed at a time: a panel of b and they fit into the second cache, */
#define COLUMNS_OF_B 512 /* and all of these into the third */

typedef struct {
  Size rows, outputs, inputs, a_apart, b_apart; /* a: (rows, outputs), b: (rows, inputs), c: (outputs, inputs) */
  const float *a, *b;
  float *c, *scratch;
  Size threads;
  Team team;
} Gradient;

/* Columns from `first` on, of some rows, in panels of `width` columns, (panels, rows, width), with zeros behind. */
static void pack_panels(const float *from, Size apart, Size rows, Size first, Size last, Size width, float *to) {
  for (Size at = first; at < last; at += width) {
    const Size given = least(width, last - at);
    for (Size k = 0; k < rows; k++, to += width)
      for (Size e = 0; e < width; e++) to[e] = e < given ? from[k * apart + at + e] : 0.0f;
  }
}

/* One panel of a with one of b: sums of `depth` rows, written or added to. */
static void corner_of_gradient(Size depth, const float *a, const float *b, float *c, Size apart, int add) {
  Vector sum[TALLEST][WIDE];
  UNROLL for (int i = 0; i < TALLEST; i++) UNROLL for (int v = 0; v < WIDE; v++) sum[i][v] = ALL(0.0f);
  for (Size k = 0; k < depth; k++, a += TALLEST, b += ACROSS) {
    Vector row[WIDE];
    UNROLL for (int v = 0; v < WIDE; v++) row[v] = load(b + v * LANES);
    UNROLL for (int i = 0; i < TALLEST; i++) UNROLL for (int v = 0; v < WIDE; v++) sum[i][v] += ALL(a[i]) * row[v];
  }
  UNROLL for (int i = 0; i < TALLEST; i++) UNROLL for (int v = 0; v < WIDE; v++) {
    float *to = c + i * apart + v * LANES;
    store(to, add ? load(to) + sum[i][v] : sum[i][v]);
  }
}
static void corner_at_the_edge(Size depth, const float *a, const float *b, float *c, Size apart, int add, Size height,
                               Size width) {
  float whole[TALLEST * ACROSS];
  corner_of_gradient(depth, a, b, whole, ACROSS, 0);
  for (Size i = 0; i < height; i++)
    for (Size j = 0; j < width; j++) c[i * apart + j] = whole[i * ACROSS + j] + (add ? c[i * apart + j] : 0.0f);
}

static Size up(Size x, Size multiple) { return (x + multiple - 1) / multiple * multiple; }
static Size packed_of_a(Size outputs) { return DEPTH * up(least(COLUMNS_OF_A, outputs), TALLEST); }
static Size scratch_of_part(Size outputs, Size inputs) {
  return packed_of_a(outputs) + DEPTH * up(least(COLUMNS_OF_B, inputs), ACROSS);
}

/* A thread's part: all inputs of some outputs, or all outputs of some inputs. */
static void part_of_gradient(void *of, int64_t index) {
  const Gradient *x = of;
  float *a = x->scratch + index * scratch_of_part(x->outputs, x->inputs), *b = a + packed_of_a(x->outputs);
  Size first = 0, last = x->outputs, first_input = 0, last_input = x->inputs;
  if (x->outputs >= x->inputs) {
    const Size each = up((x->outputs + x->threads - 1) / x->threads, TALLEST);
    first = least(index * each, last), last = least(first + each, last);
  } else {
    const Size each = up((x->inputs + x->threads - 1) / x->threads, ACROSS);
    first_input = least(index * each, last_input), last_input = least(first_input + each, last_input);
  }
  for (Size j0 = first_input; j0 < last_input; j0 += COLUMNS_OF_B)
    for (Size k0 = 0; k0 < x->rows; k0 += DEPTH) {
      const Size depth = least(DEPTH, x->rows - k0), j1 = least(j0 + COLUMNS_OF_B, last_input);
      pack_panels(x->b + k0 * x->b_apart, x->b_apart, depth, j0, j1, ACROSS, b);
      for (Size i0 = first; i0 < last; i0 += COLUMNS_OF_A) {
        const Size i1 = least(i0 + COLUMNS_OF_A, last);
        pack_panels(x->a + k0 * x->a_apart, x->a_apart, depth, i0, i1, TALLEST, a);
        for (Size j = j0; j < j1; j += ACROSS)
          for (Size i = i0; i < i1; i += TALLEST) {
            const float *own = a + (i - i0) * depth, *across = b + (j - j0) * depth;
            const Size height = least(TALLEST, i1 - i), width = least(ACROSS, j1 - j);
            float *c = x->c + i * x->inputs + j;
            if (height == TALLEST && width == ACROSS) corner_of_gradient(depth, own, across, c, x->inputs, k0 > 0);
            else corner_at_the_edge(depth, own, across, c, x->inputs, k0 > 0, height, width);
          }
      }
    }
}

Size size_of_gradient(void) { return sizeof(Gradient); }
Size scratch_of_gradient(Size outputs, Size inputs) { return scratch_of_part(outputs, inputs); } /* floats, a thread */
void gradient_of_weight(Gradient *x) { share(part_of_gradient, x, x->threads, x->threads, x->team); }

/* ---- a few rows: y = x W^T + b ---- */

/* Each sum of a row and an output is one vector over all of the width, so that an output has the same bits whatever
   rows stand beside it. */

#define MOST_ROWS 8
/* Sums in registers at once, and whether to ask for weights ahead: what was fastest on an AMD EPYC with
   AVX-512 and on one without. There, four rows of weights side by side, or two, are read faster than six or three; and
   for one row of x, faster if nothing is asked for. */
#define SUMS(rows) (LANES == 16 ? 16 : rows == 2 || rows == 4 ? 8 : 12)
#define ASKS_AHEAD(rows) (LANES == 16 || rows > 1)

typedef struct {
  Size rows, outputs, inputs, apart; /* apart: numbers from one row of the weights to the next */
  const float *x, *w, *bias;         /* bias may be null */
  float *y;
  Size threads, piece; /* outputs that a thread takes at once */
  Team team;
} FewRows;

/* What is left behind whole vectors; never inlined, so that all sums are rounded alike. */
static __attribute__((noinline)) float rest_of(const float *x, const float *w, Size count) {
  float sum = 0.0f;
  for (Size i = 0; i < count; i++) sum += x[i] * w[i];
  return sum;
}

/* `count` of at most `outputs` outputs of all rows, from the o-th on. Fewer are summed beside copies of the last one: of a
   single sum GCC would round each product by itself, if it thinks that the processor adds faster so. */
INLINE void several(const int rows, const int outputs, const FewRows *c, Size o, Size count) {
  const Size whole = c->inputs / LANES * LANES, rest = c->inputs - whole;
  const float *w = c->w + o * c->apart;
  Vector sum[MOST_ROWS][MOST_ROWS];
  UNROLL for (int i = 0; i < rows; i++) UNROLL for (int k = 0; k < outputs; k++) sum[i][k] = ALL(0.0f);
  for (Size at = 0; at < whole; at += LANES) {
    Vector x[MOST_ROWS];
    UNROLL for (int i = 0; i < rows; i++) x[i] = load(c->x + i * c->inputs + at);
    UNROLL for (int k = 0; k < outputs; k++) {
      /* Processors do not look beyond a page of 4 kB. */
      if (ASKS_AHEAD(rows)) __builtin_prefetch(w + (k + outputs) * c->apart + at);
      const Vector of_output = load(w + least(k, count - 1) * c->apart + at);
      UNROLL for (int i = 0; i < rows; i++) sum[i][k] += x[i] * of_output;
    }
  }
  UNROLL for (int k = 0; k < outputs; k++) UNROLL for (int i = 0; i < rows; i++) {
    if (k >= count) break;
    float y = total(sum[i][k]);
    if (rest) y += rest_of(c->x + i * c->inputs + whole, w + k * c->apart + whole, rest);
    c->y[i * c->outputs + o + k] = y + (c->bias ? c->bias[o + k] : 0.0f);
  }
}

#define WITH_ROWS(rows)                                                                           \
  static void with_##rows(const FewRows *c, Size o, Size last) {                                  \
    enum { sums = SUMS(rows), abreast = sums / rows < MOST_ROWS ? sums / rows : MOST_ROWS };      \
    for (; o + abreast <= last; o += abreast) several(rows, abreast, c, o, abreast);              \
    if (o < last) several(rows, abreast, c, o, last - o);                                         \
  }
WITH_ROWS(1) WITH_ROWS(2) WITH_ROWS(3) WITH_ROWS(4) WITH_ROWS(5) WITH_ROWS(6) WITH_ROWS(7) WITH_ROWS(8)

static void part_of_few_rows(void *of, int64_t index) {
  static void (*const with[])(const FewRows *, Size, Size) = {with_1, with_2, with_3, with_4,
                                                             with_5, with_6, with_7, with_8};
  const FewRows *c = of;
  with[c->rows - 1](c, index * c->piece, least((index + 1) * c->piece, c->outputs));
}

Size size_of_few_rows(void) { return sizeof(FewRows); }
void few_rows(FewRows *c) {
  share(part_of_few_rows, c, (c->outputs + c->piece - 1) / c->piece, c->threads, c->team);
}
