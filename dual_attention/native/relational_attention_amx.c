/* Relational attention in bfloat16 by matrix units (AMX), forward and backward: the scheme of relational_attention.c,
   with products of tiles, whose sums are in float32, as are softmax and what is kept of it.

   Relations are not built: H p multiplications for each pair and relation take such a unit less time than H take the
   vectors, unless p is large. What heads attend of some relation keys is contracted with queries as it comes from tiles.

   Shapes and names: as in relational_attention.c. Factors are packed as rows of halves, or as pairs of such rows. */

#define LONG_VECTORS
#include "rows.h"
#include "amx.h"

#define SPARE SIDE /* rows of senders that tiles may touch behind the last one */
#define CHUNK 64   /* relation keys that are attended at a time, about */

/* Receivers in a block: as many as a product sums at a time. */
Size block_of(Size n) { return DEEP; }
Size can_run(void) { return has_tiles(); }

typedef struct { /* of one thread */
  Half *k, *kt, *w, *wt, *s, *st; /* factors of an example: rows of senders and, transposed, rows of numbers */
  float *table;                   /* a library of relative symbols */
  float *alpha, *dalpha;          /* (H, J, L), with rows up to a multiple of DEEP */
  float *hidden, *u, *ga, *attended, *du, *keys, *part, *g, *g_lanes, *of_rows, *line;
  Half *of_senders, *of_receivers; /* of alpha or its gradient: pairs of senders, (J, H L), and rows (J, H L) */
  Half *q, *of_keys;               /* pairs: of queries or gradients of symbols, and of relation keys */
  int32_t *place;
  float *sums, *first_sums, *table_sums;
  Size of_k, of_w, of_s, total;
} Memory;

INLINE Size up_to(Size multiple, Size x) { return (x + multiple - 1) / multiple * multiple; }
INLINE Size across(const Call *x) { return up_to(DEEP, x->m + DEEP); } /* numbers in a row of senders */
INLINE Size all_keys(const Call *x) { return x->relations * x->p; }

static Size table_size(const Call *x) { return x->groups * (table_rows(x) + SPARE) * padded(x->width); }

#define HALVES(name, count) t->name = (Half *)at, at += padded(((count) + 1) / 2)
static float *place_factors(const Call *x, Memory *t, float *at) {
  const Size rows = x->m + SPARE, shared = x->library ? 0 : x->groups;
  HALVES(k, x->groups * rows * up_to(DEEP, x->d));
  HALVES(kt, x->groups * up_to(SIDE, x->d) * across(x));
  HALVES(w, rows * up_to(DEEP, all_keys(x)));
  HALVES(wt, (up_to(SIDE, all_keys(x)) + SIDE) * across(x));
  HALVES(s, shared * rows * up_to(DEEP, x->width));
  HALVES(st, shared * up_to(SIDE, x->width) * across(x));
  t->table = at;
  return at + (x->library ? table_size(x) : 0);
}

/* The memory of a thread, from `at` on, but for factors that all threads share, if there is but one example. */
static Memory memory_of(const Call *x, float *shared, float *at, int backward) {
  Memory of = {0}, *t = &of;
  float *start = at;
  if (shared) place_factors(x, t, shared);
  else at = place_factors(x, t, at);
  const Size L = x->block, HL = x->heads * L, deep = up_to(DEEP, x->m), wide = most(x->d, x->width);
#define TAKE(name, count) t->name = at, at += padded(count)
  TAKE(alpha, HL * deep);
  TAKE(hidden, x->m * L);
  TAKE(u, all_keys(x) * L);
  TAKE(keys, up_to(SIDE, most(CHUNK, x->p)) * HL);
  TAKE(part, padded(wide) * HL / x->groups);
  HALVES(of_senders, HL * deep);
  HALVES(q, L * up_to(DEEP, wide));
  t->place = (int32_t *)at, at += x->library ? x->m * L : 0;
  if (backward) {
    TAKE(dalpha, HL * deep);
    TAKE(ga, HL * x->relations);
    TAKE(du, all_keys(x) * L);
    TAKE(line, 2 * padded(all_keys(x)));
    TAKE(g, L * padded(x->width));
    TAKE(g_lanes, x->width * L);
    TAKE(of_rows, x->library * L);
    HALVES(of_receivers, HL * deep);
    HALVES(of_keys, HL * up_to(DEEP, all_keys(x)));
    t->of_k = x->groups * (x->m + SPARE) * padded(x->d);
    t->of_w = (x->m + SPARE) * padded(all_keys(x));
    t->of_s = x->one_table ? 0 : table_size(x);
    TAKE(sums, t->of_k + t->of_w + t->of_s);
    t->first_sums = t->sums;
    if (x->batch > 1) TAKE(first_sums, t->of_k + t->of_w + t->of_s);
    TAKE(table_sums, x->one_table ? table_size(x) : 0);
  } else {
    TAKE(attended, HL * x->relations);
  }
  of.total = at - start;
  return of;
}

/* Attention weights before dropout, (H, J, L). */
static void weigh(const Call *x, const Memory *t, Size b, Size i0, Size given, Span s) {
  const Size L = x->block, seen = s.last - s.first, apart = up_to(DEEP, seen) * L, ld = up_to(DEEP, x->d);
  int hides = 0;
  for (Size h = 0; h < x->heads; h++) {
    const Size g = h / (x->heads / x->groups);
    float *a = t->alpha + h * apart;
    const float *q = x->q + b * x->q_strides[0] + h * x->q_strides[1] + i0 * x->q_strides[2];
    pack_pairs(q, 1, x->q_strides[2], x->d, given, t->q, ld, L);
    multiply_tiles(seen, L, ld, t->k + (g * (x->m + SPARE) + s.first) * ld, ld, t->q, L, a, L, 0);
    if (!h || (x->mask && x->mask_strides[1])) hides = hide(x, t->hidden, b, h, i0, given, s);
    for (Size j = 0; j < seen * L; j += LANES) {
      store(a + j, load(a + j) * (float)x->scale);
      if (hides) hide_some(a + j, load(t->hidden + j));
    }
    normalise(a, L, seen, given);
  }
}

/* Packs weights or their gradient, with zeros behind the senders that are seen; rows only if they are needed. */
static void pack_weights(const Call *x, const Memory *t, const float *a, Size seen) {
  const Size L = x->block, HL = x->heads * L, deep = up_to(DEEP, seen);
  for (Size h = 0; h < x->heads; h++, a += deep * L)
    for (Size j = 0; j < deep; j += 2)
      for (Size v = 0; v < L; v += LANES) {
        const Vector none = ALL(0.0f), even = j < seen ? load(a + j * L + v) : none;
        const Vector odd = j + 1 < seen ? load(a + (j + 1) * L + v) : none;
        const Size at = h * L + v;
        store_pairs(t->of_senders + j * HL + 2 * at, even, odd);
        if (!t->of_receivers) continue;
        store_halves(t->of_receivers + j * HL + at, even);
        store_halves(t->of_receivers + (j + 1) * HL + at, odd);
      }
}

/* What the heads of a group have of rows of numbers, transposed, under packed weights: (numbers, heads of it, L). */
static void attend(const Call *x, const Memory *t, Size g, Size seen, Size first, const Half *rows, Size numbers) {
  const Size some = x->heads / x->groups * x->block, HL = x->heads * x->block;
  multiply_tiles(numbers, some, up_to(DEEP, seen), rows + first, across(x), t->of_senders + 2 * g * some, HL, t->part,
                 some, 0);
}

/* What all heads have of some relations' keys, of those from the l-th on; returns how many relations. */
static Size attend_keys(const Call *x, const Memory *t, Size l, Span s) {
  const Size HL = x->heads * x->block, count = least(x->relations - l, most(1, CHUNK / x->p));
  multiply_tiles(count * x->p, HL, up_to(DEEP, s.last - s.first), t->wt + l * x->p * across(x) + s.first, across(x),
                 t->of_senders, HL, t->keys, HL, 0);
  return count;
}

static void pack_queries(const Call *x, const Memory *t, Size b, Size i0, Size given) {
  const float *u = x->u + b * x->u_strides[0] + i0 * x->u_strides[1];
  pack_lanes(u, x->u_strides[1], given, all_keys(x), x->rel_scale, t->u, x->block);
}

static void forward_block(const Call *x, const Memory *t, Size b, Size i0, Size given) {
  const Size R = x->relations, p = x->p, L = x->block, HL = x->heads * L, repeat = x->heads / x->groups;
  const Span s = span_of(x, i0, i0 + given);
  const Size seen = s.last - s.first, apart = up_to(DEEP, seen) * L, ld = padded(x->width);
  TileState before;
  begin_tiles(&before);
  weigh(x, t, b, i0, given, s);
  drop(x, t->alpha, apart, b, i0, s);
  pack_weights(x, t, t->alpha, seen);
  pack_queries(x, t, b, i0, given);
  for (Size l = 0, count; l < R; l += count) {
    count = attend_keys(x, t, l, s);
    for (Size h = 0; h < x->heads; h++)
      for (Size c = 0; c < count; c++)
        for (Size v = 0; v < L; v += LANES) {
          Vector sum = ALL(0.0f);
          for (Size e = c * p; e < (c + 1) * p; e++)
            sum += load(t->u + (l * p + e) * L + v) * load(t->keys + e * HL + h * L + v);
          store(t->attended + (h * R + l + c) * L + v, sum);
        }
  }
  if (x->library) find_places(x, t->place, i0, given, s);
  for (Size h = 0; h < x->heads; h++) {
    const Size g = h / repeat;
    float *attended = x->attended + ((b * x->heads + h) * x->n + i0) * R;
    unpack_lanes(t->attended + h * R * L, L, given, R, 1.0f, attended, R);
    float *to = x->symbols + b * x->symbols_strides[0] + h * x->symbols_strides[1] + i0 * x->symbols_strides[2];
    if (x->library) {
      const float *table = t->table + g * (table_rows(x) + SPARE) * ld;
      attend_rows(table, ld, t->place, t->alpha + h * apart, L, seen, t->part);
      write_rows(t->part, ld, given, x->width, to, x->symbols_strides[2], 0);
    } else {
      if (h % repeat == 0) attend(x, t, g, seen, s.first, t->st + g * ld * across(x), ld);
      unpack_lanes(t->part + h % repeat * L, repeat * L, given, x->width, 1.0f, to, x->symbols_strides[2]);
    }
  }
  end_tiles(&before);
}

/* Writes the gradient of the weights through the symbols, and adds that of the symbols. */
static void symbols_backward(const Call *x, const Memory *t, Size b, Size i0, Size given, Span s, float *ds) {
  const Size ld = padded(x->width), deep = up_to(DEEP, x->width), rows = table_rows(x) + SPARE, L = x->block;
  const Size HL = x->heads * L, repeat = x->heads / x->groups, seen = s.last - s.first, apart = up_to(DEEP, seen) * L;
  const Size *strides = x->grad_symbols_strides;
  for (Size h = 0; h < x->heads; h++) {
    const Size g = h / repeat;
    const float *grad = x->grad_symbols + b * strides[0] + h * strides[1] + i0 * strides[2];
    float *da = t->dalpha + h * apart;
    if (x->library) {
      pack(grad, strides[2], given, x->width, 1.0f, t->g, L, ld);
      pack_lanes(grad, strides[2], given, x->width, 1.0f, t->g_lanes, L);
      rows_backward(x, t->table + g * rows * ld, ld, t->place, t->alpha + h * apart, seen, t->g, t->g_lanes, t->of_rows,
                    ds + g * rows * ld, da);
      continue;
    }
    pack_pairs(grad, 1, strides[2], x->width, given, t->q, deep, L);
    multiply_tiles(seen, L, deep, t->s + (g * rows + s.first) * deep, deep, t->q, L, da, L, 0);
    pack_pairs(grad, strides[2], 1, given, x->width, t->q, L, ld);
    multiply_tiles(seen, ld, L, t->of_receivers + h * L, HL, t->q, ld, ds + (g * rows + s.first) * ld, ld, 1);
  }
}

/* The gradient of what heads attend of relation keys, [g^h_l u^l]_l: pairs of numbers, (R p, H L). */
static void pack_key_gradients(const Call *x, const Memory *t) {
  const Size p = x->p, L = x->block, HL = x->heads * L, deep = up_to(DEEP, all_keys(x));
  for (Size e = 0; e < deep; e += 2)
    for (Size h = 0; h < x->heads; h++)
      for (Size v = 0; v < L; v += LANES) {
        Vector two[2] = {ALL(0.0f), ALL(0.0f)};
        for (Size i = 0; i < 2 && e + i < all_keys(x); i++)
          two[i] = load(t->ga + (h * x->relations + (e + i) / p) * L + v) * load(t->u + (e + i) * L + v);
        store_pairs(t->of_keys + e * HL + 2 * (h * L + v), two[0], two[1]);
      }
}

/* The same for one head with pairs of receivers, (L, R p). */
static void pack_key_gradients_of(const Call *x, const Memory *t, Size b, Size h, Size i0, Size given) {
  const Size R = x->relations, ld = padded(all_keys(x));
  for (Size i = 0; i < x->block; i += 2) {
    for (Size k = 0; k < 2; k++) {
      float *line = t->line + k * ld;
      const float *u = x->u + b * x->u_strides[0] + (i0 + i + k) * x->u_strides[1];
      const float *g = x->grad_attended + ((b * x->heads + h) * x->n + i0 + i + k) * R;
      memset(line, 0, ld * sizeof(float));
      for (Size l = 0; i + k < given && l < R; l++) {
        const float factor = g[l] * (float)x->rel_scale;
        for (Size e = l * x->p; e < (l + 1) * x->p; e++) line[e] = factor * u[e];
      }
    }
    for (Size e = 0; e < ld; e += LANES)
      store_pairs(t->of_keys + i * ld + 2 * e, load(t->line + e), load(t->line + ld + e));
  }
}

/* Adds to the gradient of the weights, through the relations, and to that of relation keys; writes that of u. */
static void relations_backward(const Call *x, const Memory *t, Size b, Size i0, Size given, Span s, float *dw) {
  const Size R = x->relations, p = x->p, L = x->block, HL = x->heads * L, ld = padded(R * p), deep = up_to(DEEP, R * p);
  const Size seen = s.last - s.first, apart = up_to(DEEP, seen) * L;
  pack_queries(x, t, b, i0, given);
  for (Size h = 0; h < x->heads; h++)
    pack_lanes(x->grad_attended + ((b * x->heads + h) * x->n + i0) * R, R, given, R, 1.0f, t->ga + h * R * L, L);
  for (Size l = 0, count; l < R; l += count) {
    count = attend_keys(x, t, l, s);
    for (Size e = 0; e < count * p; e++)
      for (Size v = 0; v < L; v += LANES) {
        Vector sum = ALL(0.0f);
        for (Size h = 0; h < x->heads; h++)
          sum += load(t->ga + (h * R + l + e / p) * L + v) * load(t->keys + e * HL + h * L + v);
        store(t->du + (l * p + e) * L + v, sum);
      }
  }
  unpack_lanes(t->du, L, given, R * p, x->rel_scale, x->du + (b * x->n + i0) * R * p, R * p);
  pack_key_gradients(x, t);
  for (Size h = 0; h < x->heads; h++)
    multiply_tiles(seen, L, deep, t->w + s.first * deep, deep, t->of_keys + 2 * h * L, HL, t->dalpha + h * apart, L, 1);
  for (Size h = 0; h < x->heads; h++) {
    pack_key_gradients_of(x, t, b, h, i0, given);
    multiply_tiles(seen, ld, L, t->of_receivers + h * L, HL, t->of_keys, ld, dw + s.first * ld, ld, 1);
  }
}

/* Writes the gradient of queries and adds that of keys, from that of the weights before dropout. */
static void scores_backward(const Call *x, const Memory *t, Size b, Size i0, Size given, Span s, float *dk) {
  const Size L = x->block, HL = x->heads * L, repeat = x->heads / x->groups, ld = padded(x->d);
  const Size seen = s.last - s.first, apart = up_to(DEEP, seen) * L;
  for (Size h = 0; h < x->heads; h++)
    through_softmax(t->alpha + h * apart, t->dalpha + h * apart, L, seen, x->scale);
  pack_weights(x, t, t->dalpha, seen);
  for (Size h = 0; h < x->heads; h++) {
    const Size g = h / repeat;
    if (h % repeat == 0) attend(x, t, g, seen, s.first, t->kt + g * ld * across(x), ld);
    float *dq = x->dq + b * x->dq_strides[0] + h * x->dq_strides[1] + i0 * x->dq_strides[2];
    unpack_lanes(t->part + h % repeat * L, repeat * L, given, x->d, 1.0f, dq, x->dq_strides[2]);
    const float *q = x->q + b * x->q_strides[0] + h * x->q_strides[1] + i0 * x->q_strides[2];
    pack_pairs(q, x->q_strides[2], 1, given, x->d, t->q, L, ld);
    multiply_tiles(seen, ld, L, t->of_receivers + h * L, HL, t->q, ld, dk + (g * (x->m + SPARE) + s.first) * ld, ld, 1);
  }
}

static void backward_block(const Call *x, const Memory *t, Size b, Size i0, Size given, float *sums) {
  const Span s = span_of(x, i0, i0 + given);
  const Size seen = s.last - s.first, apart = up_to(DEEP, seen) * x->block;
  TileState before;
  begin_tiles(&before);
  weigh(x, t, b, i0, given, s);
  drop(x, t->alpha, apart, b, i0, s);
  pack_weights(x, t, t->alpha, seen);
  if (x->library) find_places(x, t->place, i0, given, s);
  symbols_backward(x, t, b, i0, given, s, x->one_table ? t->table_sums : sums + t->of_k + t->of_w);
  relations_backward(x, t, b, i0, given, s, sums + t->of_k);
  if (x->share) {
    weigh(x, t, b, i0, given, s);
    drop(x, t->dalpha, apart, b, i0, s);
  }
  scores_backward(x, t, b, i0, given, s, sums);
  end_tiles(&before);
}

/* Packs the factors of a key/value head or, behind them, of a relation. */
static void pack_factors(const Call *x, const Memory *t, Size b, Size i, int with_table) {
  const Size rows = x->m + SPARE, of_row = across(x), l = i - x->groups, p = x->p;
  if (l >= 0) { /* the last one writes the zeros behind all of them */
    const Size deep = up_to(DEEP, all_keys(x)), last = l + 1 == x->relations;
    const float *w = x->w + b * x->w_strides[0] + l * p;
    for (Size j = 0; j < rows; j++)
      pack_halves(w + j * x->w_strides[1], 0, 1, j < x->m, p, t->w + j * deep + l * p, 1, last ? deep - l * p : p);
    pack_halves(w, 1, x->w_strides[1], p, x->m, t->wt + l * p * of_row,
                last ? up_to(SIDE, all_keys(x)) + SIDE - l * p : p, of_row);
    return;
  }
  const Size deep = up_to(DEEP, x->d), ld = padded(x->d), of_s = up_to(DEEP, x->width), ld_s = padded(x->width);
  const float *k = x->k + b * x->k_strides[0] + i * x->k_strides[1];
  pack_halves(k, x->k_strides[2], 1, x->m, x->d, t->k + i * rows * deep, rows, deep);
  pack_halves(k, 1, x->k_strides[2], x->d, x->m, t->kt + i * ld * of_row, ld, of_row);
  if (!with_table) return;
  const float *s = x->table + b * x->table_strides[0] + i * x->table_strides[1];
  const Size apart = x->table_strides[2], own = table_rows(x);
  if (x->library) {
    pack(s, apart, own, x->width, 1.0f, t->table + i * (own + SPARE) * ld_s, own, ld_s);
    return;
  }
  pack_halves(s, apart, 1, x->m, x->width, t->s + i * rows * of_s, rows, of_s);
  pack_halves(s, 1, apart, x->width, x->m, t->st + i * ld_s * of_row, ld_s, of_row);
}

/* Gradients of an example's relation keys, (M, R p), written or added. */
static void write_relation_keys(const Call *x, const float *sums, float *to, int add) {
  write_rows(sums, padded(all_keys(x)), x->m, all_keys(x), to, all_keys(x), add);
}

#include "examples.h"
