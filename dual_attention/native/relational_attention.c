/* Relational attention in float32, forward and backward, for blocks of receivers, each in a lane of one or two vectors.

   A block's weights are built for all senders, its relations for a few senders at a time; neither is kept. The backward
   pass builds them again. Each number of a vector belongs to another receiver, so that sums over senders, relations and
   features never cross lanes. dual_attention/native/kernels.py has the arguments.

   Shapes: B examples, H heads, G key/value heads, N receivers, M senders, D width of keys, R relations of width p, d_h
   width of symbols, K rows of a library of relative symbols; in a block: J senders that order lets any receiver see. */

#include "rows.h"

#include <string.h>

typedef struct { /* of one thread */
  float *k, *w, *s; /* factors of an example: the rows of each head and each relation one after another */
  float *q, *q_lanes, *u, *u_lanes, *alpha, *dalpha, *hidden, *r, *attended, *dbeta, *part, *g, *g_lanes, *ga, *du;
  float *dw; /* of a relation's keys, in a tile */
  int32_t *place;                        /* rows of the library, of the pairs of a block */
  float *sums, *first_sums, *table_sums; /* gradients of an example's senders; of a table that all examples share */
  Size of_k, of_w, of_s, tile, total;
} Memory;

static Size table_size(const Call *x) { return x->groups * table_rows(x) * padded(x->width); }

/* Gives the factors of an example their place; returns what comes behind them. */
static float *place_factors(const Call *x, Memory *t, float *at) {
  t->k = at, t->w = t->k + padded(x->groups * x->m * x->d);
  t->s = t->w + padded(x->relations * x->m * x->p);
  return t->s + table_size(x);
}

/* The memory of a thread, from `at` on, but for factors that all threads share, if there is but one example. */
static Memory memory_of(const Call *x, float *shared, float *at, int backward) {
  Memory t = {0};
  float *start = at;
  const Size relations = x->relations, of_table = table_size(x);
  if (shared) place_factors(x, &t, shared);
  else at = place_factors(x, &t, at);
  t.tile = most(8, least(64, 65536 / (most(1, relations) * x->block) / 4 * 4)); /* senders; 256 kB of relations */
#define TAKE(name, count) t.name = at, at += padded(count)
  TAKE(q_lanes, x->d * x->block);
  TAKE(u_lanes, relations * x->p * x->block);
  TAKE(alpha, x->heads * x->m * x->block);
  TAKE(hidden, x->m * x->block);
  TAKE(r, relations * t.tile * x->block);
  TAKE(attended, x->heads * relations * x->block);
  TAKE(part, most(padded(x->width), x->d) * x->block);
  t.place = (int32_t *)at, at += x->library ? x->m * x->block : 0;
  if (backward) {
    TAKE(q, x->block * padded(x->d));
    TAKE(u, relations * x->block * padded(x->p));
    TAKE(dalpha, x->heads * x->m * x->block);
    TAKE(dbeta, x->library * x->block * (x->m > CHAIN ? 2 : 1));
    TAKE(g, x->block * padded(x->width));
    TAKE(g_lanes, x->width * x->block);
    TAKE(ga, x->heads * relations * x->block);
    TAKE(du, relations * x->p * x->block);
    TAKE(dw, t.tile * padded(x->p));
    t.of_k = x->groups * x->m * padded(x->d);
    t.of_w = padded(relations * x->m * x->p);
    t.of_s = x->one_table ? 0 : of_table;
    TAKE(sums, t.of_k + t.of_w + t.of_s);
    t.first_sums = t.sums; /* a thread has but one example if there is but one */
    if (x->batch > 1) TAKE(first_sums, t.of_k + t.of_w + t.of_s);
    TAKE(table_sums, x->one_table ? of_table : 0);
  }
  t.total = at - start;
  return t;
}

/* ---- a block, of L receivers ---- */

/* Attention weights before dropout, (H, J, lanes). */
static void weigh(const Call *x, const Memory *t, Size b, Size i0, Size given, Span s) {
  const Size seen = s.last - s.first, count = seen * x->block;
  int hides = 0;
  for (Size h = 0; h < x->heads; h++) {
    Size g = h / (x->heads / x->groups);
    float *a = t->alpha + h * count;
    const float *q = x->q + b * x->q_strides[0] + h * x->q_strides[1] + i0 * x->q_strides[2];
    pack_lanes(q, x->q_strides[2], given, x->d, x->scale, t->q_lanes, x->block);
    product(seen, x->block, x->d, t->k + (g * x->m + s.first) * x->d, x->d, 1, t->q_lanes, x->block, a, x->block, 0);
    if (!h || (x->mask && x->mask_strides[1])) hides = hide(x, t->hidden, b, h, i0, given, s);
    for (Size j = 0; hides && j < count; j += LANES) hide_some(a + j, load(t->hidden + j));
    normalise(a, x->block, seen, given);
  }
}

/* Relations with `seen` senders from the j-th on, (R, tile, lanes). */
static void relate(const Call *x, const Memory *t, Size j, Size seen) {
  const Size L = x->block;
  for (Size l = 0; l < x->relations; l++)
    product(seen, L, x->p, t->w + (l * x->m + j) * x->p, x->p, 1, t->u_lanes + l * x->p * L, L,
            t->r + l * t->tile * L, L, 0);
}

static void forward_block(const Call *x, const Memory *t, Size b, Size i0, Size given) {
  const Size R = x->relations, ld = padded(x->width), L = x->block;
  const Span s = span_of(x, i0, i0 + given);
  const Size seen = s.last - s.first;
  weigh(x, t, b, i0, given, s);
  drop(x, t->alpha, seen * L, b, i0, s);
  const float *u = x->u + b * x->u_strides[0] + i0 * x->u_strides[1];
  pack_lanes(u, x->u_strides[1], given, R * x->p, x->rel_scale, t->u_lanes, L);
  memset(t->attended, 0, x->heads * R * L * sizeof(float));
  for (Size j = 0; j < seen; j += t->tile) {
    Size tile = least(t->tile, seen - j);
    relate(x, t, s.first + j, tile);
    lane_product(L, x->heads, R, tile, t->alpha + j * L, seen * L, L, t->r, t->tile * L, L, t->attended, R * L, L, 1);
  }
  if (x->library) find_places(x, t->place, i0, given, s);
  for (Size h = 0; h < x->heads; h++) {
    Size g = h / (x->heads / x->groups);
    float *attended = x->attended + ((b * x->heads + h) * x->n + i0) * R;
    unpack_lanes(t->attended + h * R * L, L, given, R, 1.0f, attended, R);
    const float *a = t->alpha + h * seen * L, *table = t->s + g * table_rows(x) * ld;
    float *to = x->symbols + b * x->symbols_strides[0] + h * x->symbols_strides[1] + i0 * x->symbols_strides[2];
    if (x->library) {
      attend_rows(table, ld, t->place, a, L, seen, t->part);
      write_rows(t->part, ld, given, x->width, to, x->symbols_strides[2], 0);
    } else {
      product(x->width, L, seen, table + s.first * ld, 1, ld, a, L, t->part, L, 0);
      unpack_lanes(t->part, L, given, x->width, 1.0f, to, x->symbols_strides[2]);
    }
  }
}

/* Writes the gradient of the weights through the symbols, and adds that of the symbols. */
static void symbols_backward(const Call *x, const Memory *t, Size b, Size i0, Size given, Span s, float *ds) {
  const Size ld = padded(x->width), rows = table_rows(x), seen = s.last - s.first, L = x->block;
  const Size *strides = x->grad_symbols_strides;
  for (Size h = 0; h < x->heads; h++) {
    Size g = h / (x->heads / x->groups);
    float *a = t->alpha + h * seen * L, *da = t->dalpha + h * seen * L;
    const float *grad = x->grad_symbols + b * strides[0] + h * strides[1] + i0 * strides[2];
    const float *table = t->s + g * rows * ld;
    pack(grad, strides[2], given, x->width, 1.0f, t->g, L, ld);
    pack_lanes(grad, strides[2], given, x->width, 1.0f, t->g_lanes, L);
    if (x->library) {
      rows_backward(x, table, ld, t->place, a, seen, t->g, t->g_lanes, t->dbeta, ds + g * rows * ld, da);
    } else {
      product(seen, ld, L, a, L, 1, t->g, ld, ds + (g * rows + s.first) * ld, ld, 1);
      product(seen, L, x->width, table + s.first * ld, ld, 1, t->g_lanes, L, da, L, 0);
    }
  }
}

/* Adds to the gradient of the weights, through the relations, and to that of relation keys; writes that of u. */
static void relations_backward(const Call *x, const Memory *t, Size b, Size i0, Size given, Span s, float *dw) {
  const Size R = x->relations, p = x->p, ld = padded(p), seen = s.last - s.first, L = x->block, across = t->tile * L;
  const float *u = x->u + b * x->u_strides[0] + i0 * x->u_strides[1];
  pack_lanes(u, x->u_strides[1], given, R * p, x->rel_scale, t->u_lanes, L);
  for (Size l = 0; l < R; l++)
    pack(u + l * p, x->u_strides[1], given, p, x->rel_scale, t->u + l * L * ld, L, ld);
  for (Size h = 0; h < x->heads; h++)
    pack_lanes(x->grad_attended + ((b * x->heads + h) * x->n + i0) * R, R, given, R, 1.0f, t->ga + h * R * L, L);
  memset(t->du, 0, R * p * L * sizeof(float));
  for (Size j = 0; j < seen; j += t->tile) {
    Size tile = least(t->tile, seen - j);
    relate(x, t, s.first + j, tile);
    lane_product(L, x->heads, tile, R, t->ga, R * L, L, t->r, L, across, t->dalpha + j * L, seen * L, L, 1);
    /* The relations have served: their gradient takes their place. */
    lane_product(L, R, tile, x->heads, t->ga, L, R * L, t->alpha + j * L, L, seen * L, t->r, across, L, 0);
    for (Size l = 0; l < R; l++) {
      Size at = l * x->m + s.first + j;
      product(p, L, tile, t->w + at * p, 1, p, t->r + l * across, L, t->du + l * p * L, L, 1);
      float *to = p == ld ? dw + at * p : t->dw; /* sums have rows without what pads them to vectors */
      product(tile, ld, L, t->r + l * across, L, 1, t->u + l * L * ld, ld, to, ld, p == ld);
      if (p != ld) write_rows(t->dw, ld, tile, p, dw + at * p, p, 1);
    }
  }
  unpack_lanes(t->du, L, given, R * p, x->rel_scale, x->du + (b * x->n + i0) * R * p, R * p);
}

/* Writes the gradient of queries and adds that of keys, from that of the weights before dropout. */
static void scores_backward(const Call *x, const Memory *t, Size b, Size i0, Size given, Span s, float *dk) {
  const Size ld = padded(x->d), seen = s.last - s.first, L = x->block;
  for (Size h = 0; h < x->heads; h++) {
    Size g = h / (x->heads / x->groups), sender = g * x->m + s.first;
    float *a = t->alpha + h * seen * L, *da = t->dalpha + h * seen * L;
    through_softmax(a, da, L, seen, 1.0f);
    product(x->d, L, seen, t->k + sender * x->d, 1, x->d, da, L, t->part, L, 0);
    float *dq = x->dq + b * x->dq_strides[0] + h * x->dq_strides[1] + i0 * x->dq_strides[2];
    unpack_lanes(t->part, L, given, x->d, x->scale, dq, x->dq_strides[2]);
    const float *q = x->q + b * x->q_strides[0] + h * x->q_strides[1] + i0 * x->q_strides[2];
    pack(q, x->q_strides[2], given, x->d, x->scale, t->q, L, ld);
    product(seen, ld, L, da, L, 1, t->q, ld, dk + sender * ld, ld, 1);
  }
}

static void backward_block(const Call *x, const Memory *t, Size b, Size i0, Size given, float *sums) {
  const Span s = span_of(x, i0, i0 + given);
  const Size apart = (s.last - s.first) * x->block;
  weigh(x, t, b, i0, given, s);
  drop(x, t->alpha, apart, b, i0, s);
  if (x->library) find_places(x, t->place, i0, given, s);
  symbols_backward(x, t, b, i0, given, s, x->one_table ? t->table_sums : sums + t->of_k + t->of_w);
  relations_backward(x, t, b, i0, given, s, sums + t->of_k);
  if (x->share) {
    weigh(x, t, b, i0, given, s);
    drop(x, t->dalpha, apart, b, i0, s);
  }
  scores_backward(x, t, b, i0, given, s, sums);
}

/* Packs the factors of a key/value head or, behind them, of a relation. */
static void pack_factors(const Call *x, const Memory *t, Size b, Size i, int with_table) {
  const Size rows = table_rows(x), ld = padded(x->width), l = i - x->groups;
  if (l >= 0) {
    write_rows(x->w + b * x->w_strides[0] + l * x->p, x->w_strides[1], x->m, x->p, t->w + l * x->m * x->p, x->p, 0);
    return;
  }
  const float *k = x->k + b * x->k_strides[0] + i * x->k_strides[1];
  write_rows(k, x->k_strides[2], x->m, x->d, t->k + i * x->m * x->d, x->d, 0);
  const float *s = x->table + b * x->table_strides[0] + i * x->table_strides[1];
  if (with_table) pack(s, x->table_strides[2], rows, x->width, 1.0f, t->s + i * rows * ld, rows, ld);
}

/* Gradients of an example's relation keys, (M, R, p), written or added, from sums (R, M, p). */
static void write_relation_keys(const Call *x, const float *sums, float *to, int add) {
  for (Size l = 0; l < x->relations; l++)
    write_rows(sums + l * x->m * x->p, x->p, x->m, x->p, to + l * x->p, x->relations * x->p, add);
}

/* Receivers in a block. More vectors share what is read of senders, and their weights take more of the cache: of 1, 2,
   3 and 4, 2 took the least time or nearly so, from 160 to 1,024 senders, on an AMD EPYC. */
Size block_of(Size n) { return n > LANES ? 2 * LANES : LANES; }

/* ---- examples and threads ---- */

/* Gradients of the symbols of one example, or of all examples, from sums over receivers. */
static void write_table(const Call *x, Size b, const float *sums, int add) {
  const Size ld = padded(x->width), rows = table_rows(x), *strides = x->dtable_strides;
  for (Size g = 0; g < x->groups; g++)
    write_rows(sums + g * rows * ld, ld, rows, x->width, x->dtable + b * strides[0] + g * strides[1],
               strides[2], add);
}

/* Gradients of an example's senders: written, or added to what another thread has written. */
static void write_sums(const Call *x, const Memory *t, Size b, const float *sums, int add) {
  const Size ld = padded(x->d), *strides = x->dk_strides;
  for (Size g = 0; g < x->groups; g++)
    write_rows(sums + g * x->m * ld, ld, x->m, x->d, x->dk + b * strides[0] + g * strides[1], strides[2],
               add);
  write_relation_keys(x, sums + t->of_k, x->dw + b * x->m * x->relations * x->p, add);
  if (!x->one_table) write_table(x, b, sums + t->of_k + t->of_w, add);
}

typedef struct {
  const Call *x;
  Memory t;
  Size first, last; /* blocks, of all examples in a row */
  int backward, shared; /* shared: another thread has begun the first example, whose sums are in first_sums */
} Worker;

static void work(void *workers, int64_t index) {
  Worker *me = (Worker *)workers + index;
  const Call *x = me->x;
  const Memory *t = &me->t;
  const Size blocks = (x->n + x->block - 1) / x->block;
  if (me->backward && x->one_table) memset(t->table_sums, 0, table_size(x) * sizeof(float));
  for (Size at = me->first; at < me->last;) {
    const Size b = at / blocks, end = least(me->last, (b + 1) * blocks);
    const int begun = at % blocks != 0;
    float *sums = begun ? t->first_sums : t->sums;
    for (Size i = 0; x->batch > 1 && i < x->groups + x->relations; i++)
      pack_factors(x, t, b, i, at == me->first || !x->one_table);
    if (me->backward) memset(sums, 0, (t->of_k + t->of_w + t->of_s) * sizeof(float));
    for (; at < end; at++) {
      Size i0 = at % blocks * x->block, given = least(x->block, x->n - i0);
      if (me->backward) backward_block(x, t, b, i0, given, sums);
      else forward_block(x, t, b, i0, given);
    }
    if (begun) me->shared = 1;
    else if (me->backward) write_sums(x, t, b, sums, 0);
  }
}

/* Packs some factors of the only example, which all threads share. */
static void pack_shared(void *workers, int64_t i) {
  const Worker *first = workers;
  pack_factors(first->x, &first->t, 0, i, 1);
}

static Size cost(const Call *x, Size block) {
  Span s = span_of(x, block * x->block, least((block + 1) * x->block, x->n));
  return s.last - s.first + 8;
}
/* Gives threads consecutive blocks of about the same cost. */
static void divide(const Call *x, Worker *of, Size threads) {
  const Size blocks = (x->n + x->block - 1) / x->block;
  Size example = 0, at = 0;
  for (Size i = 0; i < blocks; i++) example += cost(x, i);
  for (Size i = 0; i < threads; i++) {
    of[i].first = at;
    Size due = x->batch * example * (i + 1) / threads, left = due % example;
    at = due / example * blocks;
    for (Size j = 0; left > 0; j++, at++) left -= cost(x, j);
    of[i].last = at = i + 1 < threads ? most(of[i].first, least(at, x->batch * blocks)) : x->batch * blocks;
  }
}

static void run(const Call *x, int backward) {
  Worker of[MOST_THREADS];
  const Size threads = least(x->threads, MOST_THREADS);
  float *at = (float *)(((uintptr_t)x->scratch + 63) / 64 * 64), *shared = x->batch == 1 ? at : 0;
  Memory factors;
  if (shared) at = place_factors(x, &factors, at);
  for (Size i = 0; i < threads; i++) {
    of[i] = (Worker){.x = x, .t = memory_of(x, shared, at, backward), .backward = backward};
    at += of[i].t.total;
  }
  if (shared) share(pack_shared, of, x->groups + x->relations, threads, x->team);
  divide(x, of, threads);
  share(work, of, threads, threads, x->team);
  for (Size i = 0; backward && i < threads; i++) { /* in their order, so that sums are the same in every run */
    const Memory *t = &of[i].t;
    if (of[i].shared) write_sums(x, t, of[i].first / ((x->n + x->block - 1) / x->block), t->first_sums, 1);
    if (x->one_table) write_table(x, 0, t->table_sums, i > 0);
  }
}

/* ---- what Python calls ---- */

Size size_of_call(void) { return sizeof(Call); }
Size scratch_size(const Call *x, int backward) { /* in floats */
  float *start = (float *)64, *shared = x->batch == 1 ? start : 0;
  Memory factors;
  const Size once = shared ? place_factors(x, &factors, start) - start : 0;
  return once + memory_of(x, shared, start, backward).total * least(x->threads, MOST_THREADS) + 16;
}
void forward(const Call *x) { run(x, 0); }
void backward(const Call *x) { run(x, 1); }
/* Writes factors of dropout of all weights, (B, H, N, M), into `attended`. */
void dropout_factors(const Call *x) {
  const Span s = {0, x->m};
  for (Size b = 0; b < x->batch; b++)
    for (Size i0 = 0; i0 < x->n; i0 += x->block) {
      for (Size e = 0; e < x->heads * x->m * x->block; e++) x->scratch[e] = 1.0f;
      drop(x, x->scratch, x->m * x->block, b, i0, s);
      for (Size h = 0; h < x->heads; h++)
        unpack_lanes(x->scratch + h * x->m * x->block, x->block, least(x->block, x->n - i0), x->m, 1.0f,
                     x->attended + ((b * x->heads + h) * x->n + i0) * x->m, x->m);
    }
}
