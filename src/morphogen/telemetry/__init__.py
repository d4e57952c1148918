"""Events of a run: derived from records on the host, described, counted, and written by threads of their own.

For readers who ask "what is reported, and where does it go?".  Entry points:

    events, kinds       `Envelope` and the dataclasses of all events, validated by pydantic; `jsonl` reads and writes
                        lines (format 3, rounds count from 1) and compares an event with its run
    round_record        arrays [T, E, ...] of what happened in a round; `record_files` writes and reads them
    derive              record of a round -> events of its envs, slots and epochs
    round_summary       record of a round -> ends of episodes, events at its end; `BatchSummary` is its summary
    anomaly             rules on rounds and seeds; causes that raise the level
    dispatch            one `SinkWorker` (thread, queue) per sink
    writer              sinks and their positions: event file and records; csv, tensorboard, wandb, mlflow
    scalars             numbers of events as rows: tables of CSV, named numbers for loggers
    messages            an event as a line for people

A sink that fails is given up alone; a full queue waits for its sink.  Telemetry never changes a number of the run.
Nothing here loads torch.
"""
