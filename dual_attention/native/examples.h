/* Examples and threads, and what Python calls, for a library that has, before it includes this:

   - Memory, with all that a thread needs, memory_of and place_factors;
   - pack_factors, for each key/value head and each relation;
   - forward_block and backward_block;
   - write_relation_keys;
   - SPARE rows that its sums have behind those of each key/value head. */

/* Gradients of the symbols of one example, or of all examples, from sums over receivers. */
static void write_table(const Call *x, Size b, const float *sums, int add) {
  const Size ld = padded(x->width), rows = table_rows(x), *strides = x->dtable_strides;
  for (Size g = 0; g < x->groups; g++)
    write_rows(sums + g * (rows + SPARE) * ld, ld, rows, x->width, x->dtable + b * strides[0] + g * strides[1],
               strides[2], add);
}

/* Gradients of an example's senders: written, or added to what another thread has written. */
static void write_sums(const Call *x, const Memory *t, Size b, const float *sums, int add) {
  const Size ld = padded(x->d), *strides = x->dk_strides;
  for (Size g = 0; g < x->groups; g++)
    write_rows(sums + g * (x->m + SPARE) * ld, ld, x->m, x->d, x->dk + b * strides[0] + g * strides[1], strides[2],
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
