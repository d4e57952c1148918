"""One run and its life: started, saved, stopped, resumed, evaluated at its end.

For users (`morphogen.train_ppo_vectorized`, `morphogen.resume`) and for the commands `train` and `resume`.

- `train`: `train_ppo_vectorized` and `resume`, the entry points; paths of the config become absolute here
- `session`: `Session`, one run in this process from its first event to its last; `TrainResult`
- `checkpointer`: `Checkpointer` decides when a checkpoint is saved: by rounds, by minutes, at the end
- `snapshot`: `capture` and `restore` decide what a checkpoint holds
- `resume`: `find_resume_point` decides which checkpoint is loaded, `check_compatible` which settings may differ,
  `describe_reproducibility` what is promised for the rest of the run, `branch_run` copies a run up to a checkpoint
- `stop_signals`: `StopSignals`, a context in which the first Ctrl-C stops a run where it can be resumed
- `manifest`: `build_manifest` (contents of `manifest.json`), `environment_fingerprint` (all that the last bits of
  results depend on besides the config: versions, processor, threads, device, compile mode, native kernels)
- `sinks`: `open_sinks` opens the event file and the loggers at the position of a checkpoint, `check_sinks` raises
  before the run if a sink cannot be opened

An epoch is `engine.environment`, the order of rounds is `engine.scheduler`; the comparison on held-out instances
after the last round is `evaluation.play`; reading a finished run back is `analysis`.

Imports every package below `cli`.  The package, `sinks` and `stop_signals` load no torch; the other modules do.
"""
