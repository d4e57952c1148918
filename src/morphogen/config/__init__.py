"""Configuration of a run: `RunSpec`, presets, tasks, and their files.  Loads no torch.

For users who start a run, add a setting, or look up the values of a setting.

- `spec`: `RunSpec`, the complete configuration; `resolve` fills every field that the task or the
  reward rule decides.
- `groups`, `policy_spec`, `execution_spec`, `telemetry_spec`: the nested specs, one per subject.
- `fields`: ranges of fields, on pydantic, and the message for invalid values; `reference`: meaning
  and allowed values of every setting.
- `registry`: parts by name, of the core, of extras, of a program, or offered by installed packages;
  `parts`: the registries; `part_files`: files and modules of `--import` that register parts.
- `extra_settings`: groups of settings that extras add to a spec.
- `host`: `Host`, the description of a host network, and `CnnSpec`.
- `task`: `TASKS`, the table of data, host network, default slots, ranges of instances and settings
  of runs, read from `tasks.json`; `PRESETS`, named variations in the form of a config file, read
  from `presets.json`.
- `config_files`: `parse_config`, `dump_config`, and `build_spec` for layers of settings.
- `action_names`: actions by the names of heads and values.

Layers, the last one wins: field defaults, defaults of the task, preset, config file, `--set` and
flags.  Constructing a `RunSpec` applies task and preset beneath the given fields.  Fields that are
None after that come from the task as well, by `resolve`; a value that is set always wins, and
resolving twice changes nothing.  `dataclasses.replace` applies neither.  The `config.json` of a run
is resolved: later changes of presets or tasks do not affect the run.

Faults are collected and raised together as one `ConfigError`, a line each.  May import `vocab` and
`errors` only.
"""
