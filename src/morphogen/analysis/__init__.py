"""Reading a run back: tables, the command `inspect`, a report with pictures; nothing here changes a run.

For readers who ask "what happened in a run?".  Entry points:

    run_log        `read_run`: config, manifest and tables of a run directory; `events`, which derives from records
    tables         tables folded from events, rounds counted from 1
    views          tables derived from these, and the Pareto front
    inspect_run    the command `inspect`: contents of a run directory or a checkpoint; the head of a report
    report         the command `report`: one self-contained page
    plots          the five pictures of the report, in the style of `canvas`
    console        output of the commands: progress, tables, summary

Logs of earlier versions are read too (formats of `telemetry.jsonl` and `telemetry.record_files`).
A damaged or foreign file is a DataError that names the file and the line.
Loads no torch; `plots` needs matplotlib, which is imported when a report is made.
"""
