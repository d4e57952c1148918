"""Logs of format 3, which earlier versions wrote, read like today's.

In format 3 every event is a line of its own, with the number of its process.  A round has a record
for every process, which holds a part of the envs.  A record may be of a round that is not over, and
a column is 0 in the epochs whose level does not keep it.

    former_lines      a line -> its events
    former_records    files of the records of a round -> the events that its levels keep

    for event in mg.events(run):
        print(event.name, event.round, event.epoch)

`mg.events`, `morphogen inspect` and `morphogen report` read such a run as they read any other.
Nothing writes this format.

Plugs in at: the group of entry points `morphogen.log_formats`, as `log.jsonl.LogFormat`.  Without
this extra such a log is refused in one sentence.  Loads no torch.
"""
