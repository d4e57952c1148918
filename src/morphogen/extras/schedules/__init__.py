"""Schedules: actions that are declared epoch by epoch, built in or in JSON files, as policies.

For readers who ask "what happens if exactly these actions are taken?".  Entry points:

    action_schedule    `Schedule`: declared actions, from files and built in, with their identity
    schedule_control   `SchedulePolicy` acts as declared; `ScheduleControl` narrows its choices;
                       builders of the policies `germinate_one`, `full_cycle` and `schedule:FILE`

Plugs in at two groups of entry points: `morphogen.policies` for the built-in schedules, and
`morphogen.file_policies` for `schedule:FILE`.  A schedule narrows the masks to the declared action,
and epochs without one wait.  An illegal action ends the run with a `ScheduleError`, unless the
schedule says `"on_illegal": "wait"`.

The extra `search` builds on this one: it searches the best schedule of a task.
`action_schedule` loads no torch, `schedule_control` does.
"""
