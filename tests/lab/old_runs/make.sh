#!/bin/bash
# Run with a `dat` of commit b6024f0 on the path, in an empty folder.
set -e
QUIET="--machine.device cpu --machine.threads 1 --output.folder . --output.tensorboard false --output.progress false"
LANGUAGE="train language --data.path text.txt --data.val_tokens 160 --model.context 24 --model.d_model 16 --model.n_layers 1
  --model.n_heads_sa 1 --model.n_heads_ra 1 --model.dff 16 --model.n_relations 2 --model.n_symbols 4 --model.symbol_heads 2
  --optim.lr 0.03 --optim.warmup_steps 2 --loop.steps 40 --loop.batch_size 16 --loop.eval_batch_size 4 --loop.report_every 1
  --loop.eval_every 10 --loop.checkpoint_every 0 $QUIET"
MODEL="--model.n_layers 1 --model.n_heads_sa 1 --model.n_heads_ra 1 --model.n_relations 2 --model.n_symbols 4 --model.symbol_heads 2"
GRID="--device cpu --workers 1 --seeds 2 --quiet"

interrupt() {  # a command, once a file has so many lines
  file=$1 lines=$2; shift 2
  dat "$@" & process=$!
  until [ "$(cat $file 2>/dev/null | wc -l)" -ge "$lines" ]; do sleep 0.01; done
  kill -INT $process; wait $process || true
}

for i in $(seq 0 79); do echo "$i times $i is $((i * i)). Ünïcödé is text, too."; done > text.txt
dat $LANGUAGE --output.name language
interrupt language-unfinished/metrics.jsonl 12 $LANGUAGE --output.name language-unfinished
dat train relational-games --task same $MODEL --model.d_model 8 --model.dff 8 --data.n_train 40 --data.n_val 24 \
  --data.n_test 32 --data.n_heldout 16 --loop.epochs 2 --loop.batch_size 16 $QUIET --output.name relational-games
dat train recall --task mqar --data.size 2 $MODEL --model.d_model 16 --model.dff 16 --data.n_val 16 --data.n_test 16 \
  --optim.warmup_steps 2 --loop.steps 6 --loop.batch_size 8 --loop.eval_every 3 $QUIET --output.name recall
dat train mathematics --data.n_train 64 --data.n_val 8 --data.n_test 8 --model.d_model 8 --model.dff 8 --model.n_layers 1 --model.n_symbols 4 \
  --loop.epochs 1 --loop.batch_size 16 --optim.warmup_steps 2 $QUIET --output.name questions
dat train images --data.n_train 64 --data.n_val 16 --data.n_test 16 $MODEL --model.d_model 16 --model.dff 16 \
  --loop.epochs 1 --loop.batch_size 16 $QUIET --output.name images
dat reproduce relational-games --tasks [same] --sizes [20] --models [dat-0+2-sym] --data.n_val 8 --data.n_test 8 --data.n_heldout 8 \
  --loop.epochs 1 --out grid $GRID
interrupt grid-unfinished/results.csv 2 reproduce recall --tasks [mqar-2] --steps [4] --evaluations 2 --models [T,DAT-symbolic] \
  --data.n_val 16 --data.n_test 16 --loop.batch_size 8 --optim.warmup_steps 2 --out grid-unfinished $GRID
dat export language --out transformers
dat export language --to hub --out hub
find . -name '.*lock' -o -name '*.png' -o -name '*.pdf' -o -name comparison.md | xargs rm -f
rm -rf tokens
find . -name checkpoints -not -path './language-unfinished/*' | xargs rm -rf
