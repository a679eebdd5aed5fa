/* Work that threads share: each takes the next piece until none is left.

   The threads are those of the OpenMP that PyTorch computes with, where it has one: a second team would wait for cores
   on which the first one spins. Otherwise they are started for the call. */

#ifndef DUAL_ATTENTION_THREADS_H
#define DUAL_ATTENTION_THREADS_H

#include <pthread.h>
#include <stdint.h>

/* OpenMP's entry point for code compiled by GCC; LLVM's library has it as well. */
typedef void (*Team)(void (*member)(void *), void *of, unsigned members, unsigned flags);

typedef struct {
  void (*piece)(void *of, int64_t index);
  void *of;
  int64_t pieces, next;
} Work;

static void take_pieces(void *of) {
  Work *work = of;
  for (int64_t i; (i = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED)) < work->pieces;) work->piece(work->of, i);
}

static void *take_pieces_in_thread(void *of) {
  take_pieces(of);
  return 0;
}

#define MOST_THREADS 256

/* Calls piece(of, 0), ..., piece(of, pieces - 1), each once, on at most `threads` threads. `team` may be null. */
static void share(void (*piece)(void *, int64_t), void *of, int64_t pieces, int64_t threads, Team team) {
  Work work = {piece, of, pieces, 0};
  if (threads > pieces) threads = pieces;
  if (threads > MOST_THREADS) threads = MOST_THREADS;
  if (threads > 1 && team) {
    team(take_pieces, &work, (unsigned)threads, 0);
    return;
  }
  pthread_t started[MOST_THREADS];
  int64_t count = 0;
  while (count < threads - 1 && !pthread_create(&started[count], 0, take_pieces_in_thread, &work)) count++;
  take_pieces(&work);
  for (int64_t i = 0; i < count; i++) pthread_join(started[i], 0);
}

#endif
