"""Events of a run: derived from records on the host, described, counted, and written by threads of their own.

For readers who ask "what is reported, and where does it go?".  Entry points:

    events, kinds       `Envelope` and the dataclasses of all events, validated by pydantic; `jsonl` reads and writes
                        lines (format 3, rounds count from 1) and compares an event with its run
    derive              record of an epoch -> events; `record_memory` holds what it needs of the epochs before
    round_summary       events at the end of a round; `BatchSummary` is its summary
    anomaly             rules on rounds and epochs, suspicious seeds; causes that raise the level
    dispatch            level, flight recorder, and one `SinkWorker` (thread, queue) per sink
    writer              sinks and their positions: the event file; csv, tensorboard, wandb, mlflow
    scalars             numbers of events as rows: tables of CSV, named numbers for loggers
    messages            an event as a line for people

A sink that fails is given up alone.  Lifecycle events are never dropped, other dropped events are counted.
Telemetry never changes a number of the run.
Nothing here loads torch.
"""
