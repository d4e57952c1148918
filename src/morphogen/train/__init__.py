"""Training: run -> round -> epoch; a run is started, saved, stopped, resumed, and evaluated at its
end.

For users (`morphogen.train_ppo_vectorized`, `morphogen.resume`) and for the commands `train` and
`resume`.

- `loop`: `Scheduler`, the order of a run; `Parts` replaces its defaults, `Hooks` are called by it
- `train`: `train_ppo_vectorized` and `resume`, the entry points; paths of the config become
  absolute here
- `session`: `Session`, one run in this process from its first event to its last; `TrainResult`
- `reporter`: the one tree transferred for the log, and the events of a round
- `checkpoint`: `Checkpoint`, all that a resumed run needs; `checkpointer`: when it is saved;
  `checkpoint_store`: its files
- `resume`: `find_resume_point` decides which checkpoint is loaded, `check_compatible` which
  settings may differ, `describe_reproducibility` what is promised for the rest of the run,
  `branch_run` copies a run up to a checkpoint
- `held_out_plays`: the learning curve, and the evaluation after the last round
- `manifest`: contents of `manifest.json`, and all that the last bits of results depend on besides
  the config
- `sinks`: the event file and the loggers at the position of a checkpoint
- `stop_signals`: the first Ctrl-C stops a run where it can be resumed

Imports every package below `testing`.
The package, `sinks`, `checkpoint_store` and `stop_signals` load no torch; the others
do.
"""
