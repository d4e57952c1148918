"""Reports of a run: the command `inspect`, and one page with pictures; nothing here changes a run.

For readers who ask "what happened in a run?".  Entry points:

    inspect_run    the command `inspect`: contents of a run directory or a checkpoint; the head of a
                   report
    report         the command `report`: one self-contained page
    plots          the five pictures of the report

A run is read back by `log.run_log`: config, manifest, tables and events, of logs of earlier
versions too. A damaged or foreign file is a DataError that names the file and the line.

Tables hold a row per round, update, episode or seed; rounds are counted from 1.
The page needs no network: pictures are part of it.
Every picture answers a question of the manual.

Imports `log` and everything below it.
Loads no torch; `plots` needs matplotlib, which is imported when a report is made.
"""
