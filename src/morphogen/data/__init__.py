"""Data sets, splits, instances and training batches of all envs.

For `env`, which runs envs; to add a data set, start in `splits`.

- `dataset`: `open_dataset` returns a `Dataset`: three splits, normalisation, and the decision
  (`choose_placement`) whether training images reside on the device or are streamed from the host
- `splits`: `Samples`, `Splits`, `hold_out`; the split into training, validation and test has a
  fixed key, independent of the seed; `fingerprint` is the sha256 that a run records.  `read_digits`
  reads the packaged digits
- `preparation`: stored samples as the inputs and labels of networks
- `data_files`: folder and forms of the files of a data set; `inventory`: which are there, and what
  reading them shows
- `instances`: `draw_instances`, the task parameters of each env and episode: width, share of the
  data, label noise, classes, price of parameters; `HELD_OUT_EPISODE` separates evaluation from
  training; `instance_process`: worlds that change within an episode, and how their samples are
  shown
- `feed`: `Feed`, `ResidentFeed`; samples, labels, crops and mirrors of an epoch, drawn on the
  device; the feeds of other placements come from extras

Draws are counter-based: a batch depends on (env, episode, epoch, minibatch) and on no other env.

Imports `errors`, `vocab`, `config`, `state` and `device`.  Importing the package loads no torch;
its modules do.  Missing or damaged files are a `DataError`.
"""
