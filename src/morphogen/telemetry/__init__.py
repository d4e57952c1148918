"""Events of a run: derived from records on the host, described, counted, and written by a thread of its own.

For readers who ask "what is reported, and where does it go?".  Entry points:

    events, kinds       `Envelope` and the dataclasses of all events; `jsonl` encodes and decodes a line (format 2)
    derive              record of an epoch -> events; `epoch_events`, `episode_events`, `round_events` hold the parts
    round_summary       `BatchSummary`, the summary of a round
    anomaly, watcher    rules on rounds and epochs; causes that raise the level; `detectors`: suspicious seeds
    dispatch            level, flight recorder, and one `SinkWorker` per sink (`sink_thread`)
    writer, scalars     the event file; tensorboard, wandb, mlflow
    messages            an event as a line for people

A sink that fails is given up alone; lifecycle events are never dropped, others are counted when they are.
Telemetry never changes a number of the run.
Events and writers load no torch; the state that a checkpoint holds (`telemetry_state`) does.
"""
