"""Reading a run back: tables, reports, plots and the live view; nothing here changes a run.

For readers who ask "what happened in a run?".  Entry points:

    run_log        `read_run`: config, manifest, results and events of a run directory
    tables         tables folded from events, rounds counted from 1
    views          tables derived from these, and the Pareto front
    inspect_run    the command `inspect`: contents of a run directory or a checkpoint; the head of a report
    report         the command `report`: one self-contained page; `plots` draws its pictures
    watch          the command `watch`: a fold over the growing event file, drawn on the terminal
    console        output of the commands: progress, tables, summary

Numbers are read from the event file, from `result.json` and from `evaluation.json`.
A damaged or foreign file is a DataError that names the file and the line.
Loads no torch; `plots` needs matplotlib, which is imported when a report is made.
"""
