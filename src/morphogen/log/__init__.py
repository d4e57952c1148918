"""The log of a run: one record and one line a round; events derived from the record when
it is read.

For readers who ask "what is reported, and where is it written?".  Entry points:

    round_record        arrays [T, E, ...] of a round; `record_files` writes and reads them
    round_summary       record of a round -> ends of episodes, events about the round;
                        `BatchSummary` is its summary
    monitors            readers of rounds that add events, of extras
    events, kinds       `Envelope` and the dataclasses of all events, validated by pydantic
    jsonl               events as lines, and back; all events about a round are one line; extras
                        read earlier formats
    log_file            the event file and the records next to it, which lose nothing while the
                        process lives
    writer              hands every round to the log and to the other sinks, a thread each
    derive              record of a round -> events of its envs, slots and epochs, when a log is
                        read
    run_directory       names of all files of a run; `create_directory`, `own_directory`; `locks`:
                        one process per run
    run_log             `events`: the log of a run read back
    console             progress, tables and summary on the terminal
    codec               dataclasses and arrays as plain trees and back

Telemetry never changes a number of the run.  Nothing here loads torch.
"""
