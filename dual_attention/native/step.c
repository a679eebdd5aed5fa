/* Attention of one receiver, as in a step of decoding, in float32: each sender is read once, as it lies in memory.

   Threads take pieces of senders, under weights of the piece's own. Pieces are joined at last, in their order, so that
   no sum depends on the number of threads, nor on what other examples there are. dual_attention/native/step.py has the
   arguments.

   Shapes: B examples, H heads, G key/value heads, M senders, D width of keys, R relations of width p, d_h width of
   symbols. */

#include "products.h"
#include "threads.h"

#include <math.h>
#include <string.h>

#define PIECE 256 /* senders */
#define ABREAST 8 /* rows of senders that are read at a time, next to each other, */
#define AHEAD 16  /* while those are fetched that come so many rows later */

typedef struct {
  Size batch, heads, groups, m, d, relations, p, width, library; /* library: rows of the table, if there is an index */
  Size q_strides[2], k_strides[3], table_strides[3], w_strides[2], u_stride, mask_strides[3], index_stride;
  Size threads;
  double scale, rel_scale;
  const float *q, *k, *table, *u, *w;
  const int64_t *index;   /* rows of the table by sender, or null: they are those of the senders */
  int64_t *wrong;         /* is given an entry of the index that is no row of the table */
  const uint8_t *mask;    /* may be null */
  float *symbols, *attended; /* results, (B, H, d_h) and (B, H, R) */
  float *scratch;
  Team team;
} Step;

/* What a piece, or all of them, have of each head: the greatest score, the sum of weights relative to it, and sums under
   these weights of symbols and of relation keys. The weights themselves are behind them. */
typedef struct {
  float *top, *sum, *symbols, *keys, *weights;
  Size of_symbols, of_keys, total;
} Part;

static Part part_at(const Step *x, float *at) {
  Part t = {.of_symbols = padded(x->width), .of_keys = padded(x->relations * x->p)};
  const Size each = padded(x->heads);
  t.top = at, t.sum = t.top + each, t.symbols = t.sum + each;
  t.keys = t.symbols + x->heads * t.of_symbols, t.weights = t.keys + x->heads * t.of_keys;
  t.total = t.weights + x->heads * PIECE - at;
  return t;
}
static Size pieces_of(const Step *x) { return (x->m + PIECE - 1) / PIECE; }

static void prefetch(const float *from, Size count) {
  for (Size i = 0; i < count; i += 16) __builtin_prefetch(from + i);
}

/* Scores of some senders with the queries of one key/value head, (heads, PIECE). */
INLINE void some_scores(const int rows, const Step *x, const float *q, Size heads, const float *k, float *to) {
  const Size apart = x->k_strides[2], whole = x->d / LANES * LANES;
  for (Size h = 0; h < heads; h++, q += x->q_strides[1], to += PIECE) {
    Vector sum[ABREAST];
    UNROLL for (int j = 0; j < rows; j++) sum[j] = ALL(0.0f);
    for (Size e = 0; e < whole; e += LANES) {
      const Vector own = load(q + e);
      UNROLL for (int j = 0; j < rows; j++) sum[j] += own * load(k + j * apart + e);
    }
    UNROLL for (int j = 0; j < rows; j++) {
      float score = total(sum[j]);
      for (Size e = whole; e < x->d; e++) score += q[e] * k[j * apart + e];
      to[j] = score * (float)x->scale;
    }
  }
}

/* Adds rows `apart` from each other under weights (heads, PIECE) to sums (heads, ld). */
static void add_rows(const float *rows, Size apart, Size count, Size width, const float *weights, Size heads, float *to,
                     Size ld) {
  const Size whole = width / LANES * LANES;
  for (Size j = 0; j < count; j += ABREAST, rows += ABREAST * apart, weights += ABREAST) {
    const Size some = least(ABREAST, count - j);
    for (Size i = AHEAD; i < least(AHEAD + ABREAST, count - j); i++) prefetch(rows + i * apart, width);
    product(heads, whole, some, weights, PIECE, 1, rows, apart, to, ld, 1);
    for (Size i = 0; whole < width && i < some; i++)
      for (Size h = 0; h < heads; h++)
        for (Size e = whole; e < width; e++) to[h * ld + e] += weights[h * PIECE + i] * rows[i * apart + e];
  }
}

/* Symbols of senders from the j-th on, and then their relation keys. */
static void add_senders(const Step *x, const Part *t, Size b, Size first, Size j, Size count) {
  const Size repeat = x->heads / x->groups;
  for (Size g = 0; g < x->groups; g++) {
    const float *table = x->table + b * x->table_strides[0] + g * x->table_strides[1];
    const float *weights = t->weights + g * repeat * PIECE + j - first;
    float *to = t->symbols + g * repeat * t->of_symbols;
    if (!x->index)
      add_rows(table + j * x->table_strides[2], x->table_strides[2], count, x->width, weights, repeat, to, t->of_symbols);
    for (Size i = 0; x->index && i < count; i++) {
      const int64_t row = x->index[(j + i) * x->index_stride];
      if (row < 0 || row >= x->library) __atomic_store_n(x->wrong, row, __ATOMIC_RELAXED);
      else add_rows(table + row * x->table_strides[2], 0, 1, x->width, weights + i, repeat, to, t->of_symbols);
    }
  }
  if (x->relations)
    add_rows(x->w + b * x->w_strides[0] + j * x->w_strides[1], x->w_strides[1], count, x->relations * x->p,
             t->weights + j - first, x->heads, t->keys, t->of_keys);
}

static int sees(const Step *x, Size b, Size h, Size j) {
  return !x->mask || x->mask[b * x->mask_strides[0] + h * x->mask_strides[1] + j * x->mask_strides[2]];
}
/* Whether any head sees a sender; one that none sees is not read. */
static int is_seen(const Step *x, Size b, Size j) {
  const Size kinds = x->mask && x->mask_strides[1] ? x->heads : 1;
  for (Size h = 0; h < kinds; h++)
    if (sees(x, b, h, j)) return 1;
  return 0;
}

/* Weights of a piece relative to the greatest score of each head: scores become their exponentials. */
static void weigh(const Step *x, const Part *t, Size b, Size first, Size count) {
  for (Size h = 0; h < x->heads; h++) {
    float *a = t->weights + h * PIECE;
    for (Size j = 0; j < PIECE; j++)
      if (j >= count || !sees(x, b, h, first + j)) a[j] = -INFINITY;
    Vector top = ALL(-INFINITY), sum = ALL(0.0f);
    for (Size j = 0; j < PIECE; j += LANES) top = larger(load(a + j), top);
    float greatest = top[0];
    for (int i = 1; i < LANES; i++) greatest = top[i] > greatest ? top[i] : greatest;
    t->top[h] = greatest;
    for (Size j = 0; j < PIECE; j += LANES) {
      const Vector score = load(a + j), y = exponential(score - greatest);
      const Vector weight = (Vector)((Integers)y & (score != -INFINITY));
      store(a + j, weight);
      sum += weight;
    }
    t->sum[h] = total(sum);
  }
}

static void part_of_step(void *of, int64_t at) {
  const Step *x = of;
  const Size pieces = pieces_of(x), b = at / pieces, first = at % pieces * PIECE, repeat = x->heads / x->groups;
  const Size last = least(first + PIECE, x->m);
  const Part t = part_at(x, x->scratch + at * part_at(x, x->scratch).total);
  memset(t.top, 0, (t.weights - t.top) * sizeof(float));
  for (Size g = 0; g < x->groups; g++) {
    const float *q = x->q + b * x->q_strides[0] + g * repeat * x->q_strides[1];
    const float *k = x->k + b * x->k_strides[0] + g * x->k_strides[1];
    float *to = t.weights + g * repeat * PIECE;
    for (Size j = first, next; j < last; j = next) {
      next = j + 1;
      if (!is_seen(x, b, j)) continue;
      while (next < least(j + ABREAST, last) && is_seen(x, b, next)) next++;
      const float *rows = k + j * x->k_strides[2];
      if (next - j == ABREAST) {
        for (Size i = AHEAD; i < least(AHEAD + ABREAST, last - j); i++) prefetch(rows + i * x->k_strides[2], x->d);
        some_scores(ABREAST, x, q, repeat, rows, to + j - first);
      } else
        for (Size i = 0; i < next - j; i++) some_scores(1, x, q, repeat, rows + i * x->k_strides[2], to + j - first + i);
    }
  }
  weigh(x, &t, b, first, last - first);
  for (Size j = first, next; j < last; j = next) {
    next = j + 1;
    if (!is_seen(x, b, j)) continue;
    while (next < last && is_seen(x, b, next)) next++;
    add_senders(x, &t, b, first, j, next - j);
  }
}

/* The results of one head of an example, from those of all pieces. */
static void join(void *of, int64_t at) {
  const Step *x = of;
  const Size pieces = pieces_of(x), b = at / x->heads, h = at % x->heads, total = part_at(x, x->scratch).total;
  float *to = x->symbols + at * x->width, *attended = x->attended + at * x->relations;
  const float *u = x->relations ? x->u + b * x->u_stride : 0;
  float top = -INFINITY, sum = 0.0f;
  const Part whole = part_at(x, x->scratch + b * pieces * total); /* the first piece, which takes in the others */
  float *symbols = whole.symbols + h * whole.of_symbols, *keys = whole.keys + h * whole.of_keys;
  for (Size i = 0; i < pieces; i++) {
    const float of_piece = part_at(x, x->scratch + (b * pieces + i) * total).top[h];
    top = of_piece > top ? of_piece : top;
  }
  for (Size i = 0; i < pieces; i++) {
    const Part t = part_at(x, x->scratch + (b * pieces + i) * total);
    const float factor = t.top[h] == -INFINITY ? 0.0f : expf(t.top[h] - top);
    const float *of_symbols = t.symbols + h * t.of_symbols, *of_keys = t.keys + h * t.of_keys;
    sum += factor * t.sum[h];
    for (Size e = 0; e < t.of_symbols; e++) symbols[e] = of_symbols[e] * factor + (i ? symbols[e] : 0.0f);
    for (Size e = 0; e < t.of_keys; e++) keys[e] = of_keys[e] * factor + (i ? keys[e] : 0.0f);
  }
  const float one_over = sum == 0.0f ? 0.0f : 1.0f / sum;
  for (Size e = 0; e < x->width; e++) to[e] = symbols[e] * one_over;
  for (Size l = 0; l < x->relations; l++) {
    float relation = 0.0f;
    for (Size e = l * x->p; e < (l + 1) * x->p; e++) relation += u[e] * keys[e];
    attended[l] = relation * one_over * (float)x->rel_scale;
  }
}

Size size_of_step(void) { return sizeof(Step); }
Size scratch_of_step(const Step *x) { return x->batch * pieces_of(x) * part_at(x, (float *)64).total; } /* in floats */
void step(Step *x) {
  share(part_of_step, x, x->batch * pieces_of(x), x->threads, x->team);
  share(join, x, x->batch * x->heads, x->threads, x->team);
}
